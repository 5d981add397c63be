// Memory of the program that is not there, or no more: requests that use it fail, and the process goes on.
#include <sys/mman.h>
#include <unistd.h>
#include <csetjmp>
#include <csignal>

#include "child.h"
#include "pair.h"

namespace {

/// Registered pages of the program, which it can unmap.
class Pages {
 public:
  Pages(ibv_pd* pd, size_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    memory = static_cast<uint8_t*>(at);
    mr = ibv_reg_mr(pd, memory, bytes, Pair::kRights);
    REQUIRE(mr != nullptr);
  }
  ~Pages() {
    CHECK(ibv_dereg_mr(mr) == 0);
    munmap(memory, bytes_);
  }
  Pages(const Pages&) = delete;

  void Unmap() { REQUIRE(mmap(memory, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory); }
  void MakeReadOnly() { REQUIRE(mprotect(memory, bytes_, PROT_READ) == 0); }
  ibv_sge Piece(uint32_t bytes) const { return {reinterpret_cast<uintptr_t>(memory), bytes, mr->lkey}; }

  uint8_t* memory;
  ibv_mr* mr;

 private:
  const size_t bytes_;
};

constexpr size_t kPagesBytes = 64 << 10;

sigjmp_buf out;
int faults = 0;

void OnFault(int) {
  faults++;
  siglongjmp(out, 1);
}

/// Reads an address that no region has.
void Fault(const uint8_t* at) {
  if (sigsetjmp(out, 1) == 0) [[maybe_unused]] const uint8_t value = *const_cast<const volatile uint8_t*>(at);
}

}  // namespace

TEST_CASE("memory that is not mapped cannot be registered") {
  Device device;
  const long page = sysconf(_SC_PAGESIZE);
  void* at = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(at != MAP_FAILED);
  munmap(static_cast<uint8_t*>(at) + page, page);
  CHECK(ibv_reg_mr(device.pd, at, 2 * page, 0) == nullptr);
  CHECK(errno == EFAULT);
  ibv_mr* mr = ibv_reg_mr(device.pd, at, page, 0);
  REQUIRE(mr != nullptr);
  CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, at, 2 * page, 0) != 0);
  CHECK(ibv_dereg_mr(mr) == 0);
  munmap(at, page);
}

TEST_CASE("a region that is registered anew keeps its keys, and posted requests do not reach its new memory") {
  Pair pair;
  std::vector<uint8_t> next(Pair::kBytes);
  const uint32_t lkey = pair.b.mr->lkey, rkey = pair.b.mr->rkey;
  pair.Receive(pair.b, 0, 8);
  REQUIRE(ibv_rereg_mr(pair.b.mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, next.data(), next.size(), 0) == 0);
  CHECK(pair.b.mr->lkey == lkey);
  CHECK(pair.b.mr->rkey == rkey);
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  pair.a.memory[0] = 0x5a;
  ibv_send_wr write = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
  write.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(next.data()) + 16;
  REQUIRE(Pair::Post(pair.a, write) == 0);
  CHECK(Completion(pair.a.cq).status == IBV_WC_SUCCESS);
  CHECK(next[16] == 0x5a);
  ibv_send_wr send = pair.Request(IBV_WR_SEND, sge, pair.b);
  REQUIRE(Pair::Post(pair.a, send) == 0);
  CHECK(Completion(pair.b.cq).status == IBV_WC_LOC_PROT_ERR);
  CHECK(Completion(pair.a.cq).status == IBV_WC_REM_OP_ERR);
  CHECK(next[0] == 0);
}

TEST_CASE("a window that asks for local rights is bound as without them") {
  Pair pair;
  std::vector<uint8_t> memory(64);
  ibv_mr* mr = ibv_reg_mr(pair.device.pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  REQUIRE(mr != nullptr);
  ibv_mw* mw = ibv_alloc_mw(pair.device.pd, IBV_MW_TYPE_1);
  REQUIRE(mw != nullptr);
  ibv_mw_bind bind{};
  bind.send_flags = IBV_SEND_SIGNALED;
  const auto start = reinterpret_cast<uintptr_t>(memory.data());
  bind.bind_info = {mr, start, memory.size(), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
  REQUIRE(ibv_bind_mw(pair.b.qp, mw, &bind) == 0);
  CHECK(Completion(pair.b.cq).status == IBV_WC_SUCCESS);
  CHECK(ibv_dealloc_mw(mw) == 0);
  CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("requests from memory that was unmapped fail with a protection error") {
  for (const uint32_t bytes : {8u, 60000u}) {
    for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
      CAPTURE(bytes);
      CAPTURE(opcode);
      Pair pair;
      Pages pages(pair.device.pd, kPagesBytes);
      pair.Receive(pair.b, 0, 65536);
      pages.Unmap();
      ibv_sge sge = pages.Piece(bytes);
      ibv_send_wr request = pair.Request(opcode, sge, pair.b);
      REQUIRE(Pair::Post(pair.a, request) == 0);
      CHECK(Completion(pair.a.cq).status == IBV_WC_LOC_PROT_ERR);
    }
  }
}

TEST_CASE("requests to memory that the peer has unmapped fail") {
  for (const uint32_t bytes : {8u, 60000u}) {
    for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
      if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && bytes != 8) continue;
      CAPTURE(bytes);
      CAPTURE(opcode);
      Pair pair;
      Pages pages(pair.device.pd, kPagesBytes);
      pages.Unmap();
      ibv_sge sge = Pair::Piece(pair.a, 0, bytes);
      ibv_send_wr request = pair.Request(opcode, sge, pair.b);
      request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(pages.memory);
      request.wr.rdma.rkey = pages.mr->rkey;
      if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        request.wr.atomic.remote_addr = reinterpret_cast<uintptr_t>(pages.memory);
        request.wr.atomic.rkey = pages.mr->rkey;
      }
      REQUIRE(Pair::Post(pair.a, request) == 0);
      // the first packets of a long response are lost, and a duplicate of its request is not answered
      const bool isResponse = opcode == IBV_WR_RDMA_READ && bytes > 8;
      CHECK(Completion(pair.a.cq).status == (isResponse ? IBV_WC_RETRY_EXC_ERR : IBV_WC_REM_ACCESS_ERR));
    }
  }
}

TEST_CASE("a receive into memory that has become read-only fails with a protection error") {
  Pair pair;
  Pages pages(pair.device.pd, kPagesBytes);
  pages.MakeReadOnly();
  ibv_sge into = pages.Piece(64);
  ibv_recv_wr receive{};
  receive.sg_list = &into;
  receive.num_sge = 1;
  ibv_recv_wr* bad;
  REQUIRE(ibv_post_recv(pair.b.qp, &receive, &bad) == 0);
  ibv_sge sge = Pair::Piece(pair.a, 0, 64);
  ibv_send_wr request = pair.Request(IBV_WR_SEND, sge, pair.b);
  REQUIRE(Pair::Post(pair.a, request) == 0);
  CHECK(Completion(pair.b.cq).status == IBV_WC_LOC_PROT_ERR);
  CHECK(Completion(pair.a.cq).status == IBV_WC_REM_OP_ERR);
}

TEST_CASE("other faults reach the handlers of the program") {
  Pair pair;
  void* none = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(none != MAP_FAILED);
  struct sigaction action {}, before, set;
  action.sa_handler = OnFault;
  REQUIRE(sigaction(SIGSEGV, &action, &before) == 0);
  Fault(static_cast<uint8_t*>(none));
  CHECK(faults == 1);
  REQUIRE(sigaction(SIGSEGV, nullptr, &set) == 0);
  CHECK((set.sa_handler == OnFault));
  REQUIRE((signal(SIGSEGV, SIG_DFL) == OnFault));
  REQUIRE((signal(SIGSEGV, OnFault) == SIG_DFL));
  Fault(static_cast<uint8_t*>(none));
  CHECK(faults == 2);
  REQUIRE(sigaction(SIGSEGV, &before, nullptr) == 0);
  munmap(none, 4096);
}

TEST_CASE("other faults, and signals that are sent, end a program without a handler") {
  Pair pair;
  for (const int each : {SIGSEGV, SIGBUS}) {
    const auto touch = [each] {
      signal(each, SIG_DFL);
      void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      *static_cast<volatile uint8_t*>(page) = 1;
    };
    if (each == SIGSEGV) CHECK(WTERMSIG(InChild(touch)) == SIGSEGV);
    const auto send = [each] {
      signal(each, SIG_DFL);
      raise(each);
    };
    CHECK(WTERMSIG(InChild(send)) == each);
    const auto ignore = [each] {
      signal(each, SIG_IGN);
      raise(each);
      raise(each);
    };
    CHECK(InChild(ignore) == 0);
  }
}
