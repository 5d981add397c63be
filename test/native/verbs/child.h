// Child processes of tests.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

/// Runs a function in a child process, which ends after 20 s at the latest. @returns its status, as of waitpid
template <typename Function>
int InChild(Function function) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    function();
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}
