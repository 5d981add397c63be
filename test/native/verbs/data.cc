#include <numeric>

#include "pair.h"

namespace {

void Fill(std::vector<uint8_t>& memory) { std::iota(memory.begin(), memory.end(), uint8_t{1}); }

bool Equal(const std::vector<uint8_t>& x, const std::vector<uint8_t>& y, size_t bytes) {
  return memcmp(x.data(), y.data(), bytes) == 0;
}

}  // namespace

TEST_CASE("a SEND places its data in the memory of a receive") {
  Pair pair;
  Fill(pair.a.memory);
  pair.Receive(pair.b, 0, 5000, 3);
  ibv_sge sge = Pair::Piece(pair.a, 0, 5000);
  ibv_send_wr request = pair.Request(IBV_WR_SEND, sge, pair.b);
  REQUIRE(Pair::Post(pair.a, request) == 0);
  const ibv_wc sent = Completion(pair.a.cq), received = Completion(pair.b.cq);
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(sent.wr_id == 7);
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.wr_id == 3);
  CHECK(received.byte_len == 5000);
  CHECK(received.qp_num == pair.b.qp->qp_num);
  CHECK(Equal(pair.a.memory, pair.b.memory, 5000));
}

TEST_CASE("a WRITE and a READ move all bytes of a region") {
  Pair pair;
  Fill(pair.a.memory);
  ibv_sge sge = Pair::Piece(pair.a, 0, Pair::kBytes);
  ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
  REQUIRE(Pair::Post(pair.a, request) == 0);
  CHECK(Completion(pair.a.cq).status == IBV_WC_SUCCESS);
  CHECK(Equal(pair.a.memory, pair.b.memory, Pair::kBytes));
  std::fill(pair.a.memory.begin(), pair.a.memory.end(), 0);
  request = pair.Request(IBV_WR_RDMA_READ, sge, pair.b);
  REQUIRE(Pair::Post(pair.a, request) == 0);
  CHECK(Completion(pair.a.cq).status == IBV_WC_SUCCESS);
  CHECK(Equal(pair.a.memory, pair.b.memory, Pair::kBytes));
}

TEST_CASE("atomic operations return the value from before") {
  Pair pair;
  const uint64_t before = 40;
  memcpy(pair.b.memory.data(), &before, sizeof before);
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  ibv_send_wr request = pair.Request(IBV_WR_ATOMIC_FETCH_AND_ADD, sge, pair.b);
  request.wr.atomic.remote_addr = reinterpret_cast<uintptr_t>(pair.b.memory.data());
  request.wr.atomic.rkey = pair.b.mr->rkey;
  request.wr.atomic.compare_add = 2;
  REQUIRE(Pair::Post(pair.a, request) == 0);
  CHECK(Completion(pair.a.cq).status == IBV_WC_SUCCESS);
  uint64_t returned, now;
  memcpy(&returned, pair.a.memory.data(), sizeof returned);
  memcpy(&now, pair.b.memory.data(), sizeof now);
  CHECK(returned == 40);
  CHECK(now == 42);
}

TEST_CASE("immediate data arrives as it was given") {
  Pair pair;
  pair.Receive(pair.b, 0, 0);
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE_WITH_IMM, sge, pair.b);
  request.imm_data = 0x01020304;
  REQUIRE(Pair::Post(pair.a, request) == 0);
  const ibv_wc received = Completion(pair.b.cq);
  CHECK(received.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK((received.wc_flags & IBV_WC_WITH_IMM) != 0);
  CHECK(received.imm_data == 0x01020304);
}

TEST_CASE("inline data is copied when it is posted") {
  Pair pair;
  pair.Receive(pair.b, 0, 64);
  char text[] = "inline";
  ibv_sge sge{reinterpret_cast<uintptr_t>(text), sizeof text, 0};
  ibv_send_wr request = pair.Request(IBV_WR_SEND, sge, pair.b);
  request.send_flags |= IBV_SEND_INLINE;
  REQUIRE(Pair::Post(pair.a, request) == 0);
  strcpy(text, "later");
  CHECK(Completion(pair.b.cq).byte_len == sizeof text);
  CHECK(strcmp(reinterpret_cast<char*>(pair.b.memory.data()), "inline") == 0);
}

TEST_CASE("a datagram arrives behind the header of its sender, which can be answered") {
  Pair pair(IBV_QPT_UD);
  pair.Receive(pair.b, 0, 140);
  ibv_ah_attr address = pair.Address();
  ibv_ah* ah = ibv_create_ah(pair.device.pd, &address);
  REQUIRE(ah != nullptr);
  Fill(pair.a.memory);
  ibv_sge sge = Pair::Piece(pair.a, 0, 100);
  ibv_send_wr request = pair.Request(IBV_WR_SEND, sge, pair.b);
  request.wr.ud = {ah, pair.b.qp->qp_num, Pair::kQkey};
  REQUIRE(Pair::Post(pair.a, request) == 0);
  ibv_wc received = Completion(pair.b.cq);
  CHECK(received.byte_len == 140);
  CHECK((received.wc_flags & IBV_WC_GRH) != 0);
  CHECK(received.src_qp == pair.a.qp->qp_num);
  CHECK(received.sl == 10);
  CHECK(memcmp(pair.b.memory.data() + 40, pair.a.memory.data(), 100) == 0);
  ibv_ah_attr sender;
  auto* grh = reinterpret_cast<ibv_grh*>(pair.b.memory.data());
  CHECK(ibv_init_ah_from_wc(pair.device.context, 1, &received, grh, &sender) == 0);
  CHECK(memcmp(&sender.grh.dgid, &address.grh.dgid, sizeof sender.grh.dgid) == 0);
  Completion(pair.a.cq);
  CHECK(ibv_destroy_ah(ah) == 0);
}

TEST_CASE("functions that return an errno set errno, too") {
  Pair pair;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  errno = 0;
  CHECK(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE) == EINVAL);
  CHECK(errno == EINVAL);
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  ibv_send_wr request = pair.Request(IBV_WR_SEND, sge, pair.b);
  request.num_sge = 1000;
  errno = 0;
  CHECK(Pair::Post(pair.a, request) == EINVAL);
  CHECK(errno == EINVAL);
  errno = 0;
  CHECK(ibv_dealloc_pd(pair.device.pd) == EBUSY);
  CHECK(errno == EBUSY);
}

TEST_CASE("an address has the 20 bits of a flow label that its header has room for") {
  Pair pair(IBV_QPT_UD);
  ibv_ah_attr address = pair.Address();
  address.grh.flow_label = 0xffffffff;
  ibv_ah* ah = ibv_create_ah(pair.device.pd, &address);
  REQUIRE(ah != nullptr);
  CHECK(ibv_destroy_ah(ah) == 0);
}

TEST_CASE("a request has inline data in place of its pieces, however little the program has asked for") {
  Device device;
  ibv_cq* cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {4, 4, 2, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* qp = ibv_create_qp(device.pd, &init);
  REQUIRE(qp != nullptr);
  CHECK(init.cap.max_inline_data >= 32);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
}

TEST_CASE("a local address outside of its region fails the request") {
  Pair pair;
  for (const int64_t at : {int64_t{-1}, int64_t{Pair::kBytes} - 7, int64_t{1} << 33}) {
    Pair fresh;
    ibv_sge sge = Pair::Piece(fresh.a, 0, 8);
    sge.addr += static_cast<uint64_t>(at);
    ibv_send_wr request = fresh.Request(IBV_WR_RDMA_WRITE, sge, fresh.b);
    REQUIRE(Pair::Post(fresh.a, request) == 0);
    CHECK(Completion(fresh.a.cq).status == IBV_WC_LOC_PROT_ERR);
  }
}

TEST_CASE("a remote address outside of its region fails the request, and the peer's queue pair reports it") {
  Pair pair;
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b, Pair::kBytes - 4);
  REQUIRE(Pair::Post(pair.a, request) == 0);
  CHECK(Completion(pair.a.cq).status == IBV_WC_REM_ACCESS_ERR);
  ibv_async_event event;
  REQUIRE(ibv_get_async_event(pair.device.context, &event) == 0);
  CHECK(event.event_type == IBV_EVENT_QP_ACCESS_ERR);
  CHECK(event.element.qp == pair.b.qp);
  ibv_ack_async_event(&event);
}

TEST_CASE("a queue pair that is reset leaves no completion, and another one keeps its own") {
  Device device;
  ibv_cq* cq = ibv_create_cq(device.context, 16, nullptr, nullptr, 0);
  REQUIRE(cq != nullptr);
  ibv_qp* qps[2];
  const auto fail = [](ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    REQUIRE(ibv_modify_qp(qp, &attr, init) == 0);
    attr.qp_state = IBV_QPS_ERR;
    REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  };
  for (ibv_qp*& qp : qps) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {1, 16, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp(device.pd, &init);
    REQUIRE(qp != nullptr);
    fail(qp);
  }
  // the queue's ring begins anew between some of them
  for (uint64_t round = 0; round < 8; round++) {
    for (uint64_t id = 0; id < 10; id++) {
      ibv_recv_wr request{}, *bad;
      request.wr_id = id;
      REQUIRE(ibv_post_recv(qps[id % 2], &request, &bad) == 0);
    }
    CHECK(Completion(cq).wr_id == 0);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_RESET;
    REQUIRE(ibv_modify_qp(qps[round % 2], &attr, IBV_QP_STATE) == 0);
    for (uint64_t id = 1 + round % 2; id < 10; id += 2) CHECK(Completion(cq).wr_id == id);
    ibv_wc wc;
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    fail(qps[round % 2]);
  }
  for (ibv_qp* qp : qps) CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
}
