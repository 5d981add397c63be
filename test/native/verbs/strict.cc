// Misuse ends the program, with WASM_ROCE_STRICT. Each test runs in a child process, which it may end.
#include <csignal>
#include <cstdlib>
#include <string>

#include "child.h"
#include "pair.h"
#include "stderrtext.h"

namespace {

constexpr int kCompletes = 0;

/// Runs a function in a child process that is checked. @returns kCompletes, or the signal that has ended it
template <typename Function>
int Checked(Function function) {
  const int status = InChild([&] {
    setenv("WASM_ROCE_STRICT", "1", 1);
    function();
  });
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

/// Posts a request of an end, and changes the first byte of its data before its completion.
void PostAndChange(Pair& pair, ibv_send_wr& request) {
  REQUIRE(Pair::Post(pair.a, request) == 0);
  pair.a.memory[0]++;
  Completion(pair.a.cq);
}

}  // namespace

TEST_CASE("strict: data that change before their completion end the program") {
  const StderrText text;
  CHECK(Checked([] {
          Pair pair;
          ibv_sge sge = Pair::Piece(pair.a, 0, 5000);
          ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
          PostAndChange(pair, request);
        }) == SIGABRT);
  CHECK(text.Get().find("strict: the data of RDMA_WRITE (wr_id 7) on qp 0x") != std::string::npos);
  CHECK(text.Get().find(" have changed before its completion") != std::string::npos);
}

TEST_CASE("strict: data of an unsignaled request must stay until a later one is complete") {
  const StderrText text;
  CHECK(Checked([] {
          Pair pair;
          ibv_sge sge = Pair::Piece(pair.a, 0, 8), other = Pair::Piece(pair.a, 64, 8);
          ibv_send_wr first = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
          first.send_flags = 0;
          REQUIRE(Pair::Post(pair.a, first) == 0);
          ibv_send_wr second = pair.Request(IBV_WR_RDMA_WRITE, other, pair.b, 64);
          PostAndChange(pair, second);
        }) == SIGABRT);
  CHECK(text.Get().find("have changed") != std::string::npos);
}

TEST_CASE("strict: inline data, data that are complete, and destinations may change") {
  CHECK(Checked([] {
          Pair pair;
          ibv_sge sge = Pair::Piece(pair.a, 0, 8);
          ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
          request.send_flags |= IBV_SEND_INLINE;
          PostAndChange(pair, request);
          ibv_send_wr read = pair.Request(IBV_WR_RDMA_READ, sge, pair.b);
          PostAndChange(pair, read);
          for (int i = 0; i < 20; i++) {
            ibv_send_wr write = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
            REQUIRE(Pair::Post(pair.a, write) == 0);
            Completion(pair.a.cq);
            pair.a.memory[0]++;
          }
        }) == kCompletes);
}

TEST_CASE("strict: inline data that are too long, and too many pieces, end the program") {
  const StderrText text;
  CHECK(Checked([] {
          Pair pair;
          ibv_sge sge = Pair::Piece(pair.a, 0, 4096);
          ibv_send_wr request = pair.Request(IBV_WR_SEND, sge, pair.b);
          request.send_flags |= IBV_SEND_INLINE;
          Pair::Post(pair.a, request);
        }) == SIGABRT);
  CHECK(text.Get().find("4096 bytes of inline data are more than its max_inline_data 64") != std::string::npos);
  CHECK(Checked([] {
          Pair pair;
          ibv_sge pieces[5];
          for (ibv_sge& each : pieces) each = Pair::Piece(pair.a, 0, 1);
          ibv_send_wr request = pair.Request(IBV_WR_SEND, pieces[0], pair.b);
          request.num_sge = 5;
          Pair::Post(pair.a, request);
        }) == SIGABRT);
  CHECK(text.Get().find("5 pieces are more than its max_send_sge 4") != std::string::npos);
}

TEST_CASE("strict: a local key of another domain ends the program") {
  const StderrText text;
  CHECK(Checked([] {
          Pair pair;
          ibv_pd* other = ibv_alloc_pd(pair.device.context);
          ibv_mr* foreign = ibv_reg_mr(other, pair.a.memory.data(), 4096, Pair::kRights);
          ibv_sge sge{reinterpret_cast<uintptr_t>(pair.a.memory.data()), 8, foreign->lkey};
          ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
          Pair::Post(pair.a, request);
          Completion(pair.a.cq);
        }) == SIGABRT);
  CHECK(text.Get().find("failed with LOC_PROT_ERR") != std::string::npos);
}

TEST_CASE("strict: a completion queue that overruns ends the program") {
  const StderrText text;
  CHECK(Checked([] {
          Pair pair;
          REQUIRE(ibv_resize_cq(pair.a.cq, 1) == 0);
          ibv_sge sge = Pair::Piece(pair.a, 0, 8);
          ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
          for (int i = 0; i <= pair.a.cq->cqe; i++) Pair::Post(pair.a, request);
          ibv_async_event event;
          ibv_get_async_event(pair.device.context, &event);
        }) == SIGABRT);
  CHECK(text.Get().find("failed: it was full, and a completion is lost (CQ_ERR)") != std::string::npos);
}

TEST_CASE("strict: a handler of SIGABRT does not run, which could call verbs") {
  CHECK(Checked([] {
          signal(SIGABRT, [](int) { _exit(3); });
          Pair pair;
          ibv_recv_wr request{};
          request.num_sge = 100;
          ibv_recv_wr* bad;
          ibv_post_recv(pair.a.qp, &request, &bad);
        }) == SIGABRT);
}
