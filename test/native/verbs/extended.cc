#include "pair.h"

namespace {

ibv_cq_ex* MakeCq(const Device& device) {
  ibv_cq_init_attr_ex attr{};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* cq = ibv_create_cq_ex(device.context, &attr);
  REQUIRE(cq != nullptr);
  return cq;
}

/// A queue pair with calls that describe requests, in state RESET.
ibv_qp* MakeQp(const Device& device, ibv_cq* cq, ibv_qp_type type, uint64_t operations) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {4, 4, 1, 1, 64};
  init.qp_type = type;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = device.pd;
  init.send_ops_flags = operations;
  ibv_qp* qp = ibv_create_qp_ex(device.context, &init);
  REQUIRE(qp != nullptr);
  return qp;
}

}  // namespace

TEST_CASE("a described request is posted by wr_complete, and the extended poll reads its completion") {
  Pair pair(IBV_QPT_UD);
  ibv_cq_ex* cq = MakeCq(pair.device);
  ibv_qp* qp = MakeQp(pair.device, ibv_cq_ex_to_cq(cq), IBV_QPT_UD, IBV_QP_EX_WITH_SEND_WITH_IMM);
  ibv_qp_attr attr{};
  attr.port_num = 1;
  attr.qkey = Pair::kQkey;
  attr.qp_state = IBV_QPS_INIT;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  attr.qp_state = IBV_QPS_RTR;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  attr.qp_state = IBV_QPS_RTS;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
  pair.Receive(pair.b, 0, 100);
  ibv_ah_attr address = pair.Address();
  ibv_ah* ah = ibv_create_ah(pair.device.pd, &address);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
  REQUIRE(ex != nullptr);
  char text[] = "described";
  ibv_wr_start(ex);
  ex->wr_id = 99;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(ex, 5);
  ibv_wr_set_ud_addr(ex, ah, pair.b.qp->qp_num, Pair::kQkey);
  ibv_wr_set_inline_data(ex, text, sizeof text);
  strcpy(text, "later");
  REQUIRE(ibv_wr_complete(ex) == 0);
  const ibv_wc received = Completion(pair.b.cq);
  CHECK(received.imm_data == 5);
  CHECK(strcmp(reinterpret_cast<char*>(pair.b.memory.data()) + 40, "described") == 0);
  ibv_poll_cq_attr poll{};
  int refused = ENOENT;
  for (int i = 0; i < 1'000'000 && refused == ENOENT; i++) refused = ibv_start_poll(cq, &poll);
  REQUIRE(refused == 0);
  CHECK(cq->wr_id == 99);
  CHECK(cq->status == IBV_WC_SUCCESS);
  CHECK(ibv_wc_read_opcode(cq) == IBV_WC_SEND);
  CHECK(ibv_next_poll(cq) == ENOENT);
  ibv_end_poll(cq);
  CHECK(ibv_destroy_ah(ah) == 0);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

TEST_CASE("aborted requests are not posted") {
  Pair pair;
  ibv_qp* qp = MakeQp(pair.device, pair.a.cq, IBV_QPT_RC, IBV_QP_EX_WITH_SEND);
  ibv_qp_ex* ex = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_abort(ex);
  ibv_wr_start(ex);
  CHECK(ibv_wr_complete(ex) == 0);
  ibv_wc wc;
  CHECK(ibv_poll_cq(pair.a.cq, 1, &wc) == 0);
  CHECK(ibv_destroy_qp(qp) == 0);
}

TEST_CASE("types and features that the card lacks are refused with EOPNOTSUPP") {
  Pair pair;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = pair.a.cq;
  init.cap = {1, 1, 1, 1, 0};
  for (const ibv_qp_type type : {IBV_QPT_RAW_PACKET, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV, IBV_QPT_DRIVER}) {
    init.qp_type = type;
    errno = 0;
    CHECK(ibv_create_qp(pair.device.pd, &init) == nullptr);
    CHECK(errno == EOPNOTSUPP);
  }
  errno = 0;
  CHECK(ibv_reg_mr(pair.device.pd, &init, sizeof init, IBV_ACCESS_ON_DEMAND) == nullptr);
  CHECK(errno == EOPNOTSUPP);
  ibv_xrcd_init_attr xrcd{};
  errno = 0;
  CHECK(ibv_open_xrcd(pair.device.context, &xrcd) == nullptr);
  CHECK(errno == EOPNOTSUPP);
}
