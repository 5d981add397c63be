// The text that goes to stderr during a test.
#pragma once
#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <string>

/// Keeps the text while it lives, also that of child processes.
class StderrText {
 public:
  StderrText() { REQUIRE(dup2(file_, STDERR_FILENO) == STDERR_FILENO); }
  ~StderrText() {
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    close(file_);
  }
  StderrText(const StderrText&) = delete;

  std::string Get() const {
    std::string text(4096, '\0');
    text.resize(pread(file_, text.data(), text.size(), 0));
    return text;
  }

 private:
  int stderr_ = dup(STDERR_FILENO);
  int file_ = memfd_create("stderr", MFD_CLOEXEC);
};
