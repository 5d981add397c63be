#include <cstdlib>
#include <string>

#include "pair.h"
#include "stderrtext.h"

namespace {

/// The explanations of a test.
class Explanations {
 public:
  Explanations() { setenv("WASM_ROCE_EXPLAIN", "1", 1); }
  std::string Text() const { return text_.Get(); }

 private:
  StderrText text_;
};

/// Waits for an asynchronous event. @returns its type
ibv_event_type NextEvent(ibv_context* context) {
  ibv_async_event event;
  REQUIRE(ibv_get_async_event(context, &event) == 0);
  ibv_ack_async_event(&event);
  return event.event_type;
}

std::string NameOf(const Pair::End& end, const Pair::End& peer) {
  char text[80];
  snprintf(text, sizeof text, "qp 0x%06x to 127.0.0.1 qp 0x%06x", end.qp->qp_num, peer.qp->qp_num);
  return text;
}

}  // namespace

TEST_CASE("a completion queue that was full is explained, and the failure of its queue pair") {
  const Explanations explanations;
  Pair pair;
  REQUIRE(ibv_resize_cq(pair.a.cq, 1) == 0);
  const std::string size = std::to_string(pair.a.cq->cqe);
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
  for (int i = 0; i <= pair.a.cq->cqe; i++) REQUIRE(Pair::Post(pair.a, request) == 0);
  CHECK(NextEvent(pair.device.context) == IBV_EVENT_CQ_ERR);
  CHECK(NextEvent(pair.device.context) == IBV_EVENT_QP_FATAL);
  CHECK(explanations.Text() ==
        "wasm-roce: a completion queue of size " + size + " failed: it was full, and a completion is lost (CQ_ERR)\n" +
            "wasm-roce: " + NameOf(pair.a, pair.b) + " failed: its completion was lost (QP_FATAL)\n");
}

TEST_CASE("a refused request is explained at both ends, and the receives that it flushes are not") {
  const Explanations explanations;
  Pair pair;
  pair.Receive(pair.b, 0, 8, 5);
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
  request.wr.rdma.rkey++;
  REQUIRE(Pair::Post(pair.a, request) == 0);
  CHECK(Completion(pair.a.cq).status == IBV_WC_REM_ACCESS_ERR);
  CHECK(Completion(pair.b.cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(NextEvent(pair.device.context) == IBV_EVENT_QP_ACCESS_ERR);
  const std::string text = explanations.Text();
  INFO(text);
  const auto has = [&](const std::string& part) { return text.find(part) != std::string::npos; };
  CHECK(has(NameOf(pair.b, pair.a) + " failed: the request of the peer has no access to the memory (QP_ACCESS_ERR)\n"));
  CHECK(has("RDMA_WRITE (wr_id 7) on " + NameOf(pair.a, pair.b) + " failed with REM_ACCESS_ERR: "));
  CHECK(!has("RECV"));
}

TEST_CASE("a receive that the program flushes is explained without the facts of requests") {
  const Explanations explanations;
  Pair pair;
  pair.Receive(pair.b, 0, 8, 5);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(pair.b.qp, &attr, IBV_QP_STATE) == 0);
  CHECK(Completion(pair.b.cq).status == IBV_WC_WR_FLUSH_ERR);
  CHECK(explanations.Text() == "wasm-roce: RECV (wr_id 5) on " + NameOf(pair.b, pair.a) +
                                   " failed with WR_FLUSH_ERR: the queue pair went to ERR before completion\n");
}
