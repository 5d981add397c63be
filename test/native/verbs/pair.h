// Two queue pairs of the device, connected with each other, for tests of the library by libibverbs' calls alone.
#pragma once
#include <doctest/doctest.h>
#include <infiniband/verbs.h>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

/// A context with a protection domain. The device is on the loopback interface of the test's network namespace.
class Device {
 public:
  Device() {
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    REQUIRE(count == 1);
    context = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    REQUIRE(context != nullptr);
    pd = ibv_alloc_pd(context);
    REQUIRE(pd != nullptr);
  }
  ~Device() {
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
  }
  Device(const Device&) = delete;

  ibv_context* context;
  ibv_pd* pd;
};

/// Waits up to five seconds for completions. @returns those that have come
inline std::vector<ibv_wc> Completions(ibv_cq* cq, size_t count) {
  std::vector<ibv_wc> all;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (all.size() < count && std::chrono::steady_clock::now() < end) {
    ibv_wc wc;
    const int polled = ibv_poll_cq(cq, 1, &wc);
    REQUIRE(polled >= 0);
    if (polled > 0) all.push_back(wc);
  }
  return all;
}

/// Waits for one completion, which must be there.
inline ibv_wc Completion(ibv_cq* cq) {
  const auto all = Completions(cq, 1);
  REQUIRE(all.size() == 1);
  return all[0];
}

class Pair {
 public:
  static constexpr size_t kBytes = 64 << 10;
  static constexpr uint32_t kQkey = 0x11111111;
  static constexpr int kRights =
      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

  /// One end: its memory, and its queue pair.
  struct End {
    std::vector<uint8_t> memory = std::vector<uint8_t>(kBytes);
    ibv_mr* mr = nullptr;
    ibv_cq* cq = nullptr;
    ibv_qp* qp = nullptr;
  };

  explicit Pair(ibv_qp_type type = IBV_QPT_RC) : type_(type) {
    for (End* end : {&a, &b}) Make(*end);
    Connect(a, b);
    Connect(b, a);
  }
  ~Pair() {
    for (End* end : {&a, &b}) {
      CHECK(ibv_destroy_qp(end->qp) == 0);
      CHECK(ibv_destroy_cq(end->cq) == 0);
      CHECK(ibv_dereg_mr(end->mr) == 0);
    }
  }
  Pair(const Pair&) = delete;

  static ibv_sge Piece(const End& end, size_t at, uint32_t bytes) {
    return {reinterpret_cast<uintptr_t>(end.memory.data()) + at, bytes, end.mr->lkey};
  }

  void Receive(End& end, size_t at, uint32_t bytes, uint64_t id = 0) {
    ibv_sge sge = Piece(end, at, bytes);
    ibv_recv_wr request{};
    request.wr_id = id;
    request.sg_list = &sge;
    request.num_sge = 1;
    ibv_recv_wr* bad;
    REQUIRE(ibv_post_recv(end.qp, &request, &bad) == 0);
  }

  /// Returns a signalled request for memory of an end. `sge` must live until it is posted.
  ibv_send_wr Request(ibv_wr_opcode opcode, ibv_sge& sge, End& peer, size_t at = 0) const {
    ibv_send_wr request{};
    request.wr_id = 7;
    request.opcode = opcode;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(peer.memory.data()) + at;
    request.wr.rdma.rkey = peer.mr->rkey;
    return request;
  }

  static int Post(End& end, ibv_send_wr& request) {
    ibv_send_wr* bad;
    return ibv_post_send(end.qp, &request, &bad);
  }

  Device device;
  End a, b;

 private:
  void Make(End& end) {
    end.mr = ibv_reg_mr(device.pd, end.memory.data(), end.memory.size(), kRights);
    REQUIRE(end.mr != nullptr);
    end.cq = ibv_create_cq(device.context, 64, nullptr, nullptr, 0);
    REQUIRE(end.cq != nullptr);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = end.cq;
    init.cap = {16, 16, 4, 4, 64};
    init.qp_type = type_;
    end.qp = ibv_create_qp(device.pd, &init);
    REQUIRE(end.qp != nullptr);
  }

  void Connect(End& end, const End& peer) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qp_access_flags = kRights;
    attr.qkey = kQkey;
    const bool isUd = type_ == IBV_QPT_UD, isRc = type_ == IBV_QPT_RC;
    const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    REQUIRE(ibv_modify_qp(end.qp, &attr, init | (isUd ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = peer.qp->qp_num;
    attr.max_dest_rd_atomic = 16;
    attr.min_rnr_timer = 12;
    attr.ah_attr = Address();
    const int connected = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    const int reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    REQUIRE(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | (isUd ? 0 : connected) | (isRc ? reliable : 0)) == 0);
    attr.qp_state = IBV_QPS_RTS;
    attr.timeout = 12;
    attr.retry_cnt = 7;
    attr.rnr_retry = 0;
    attr.max_rd_atomic = 16;
    const int retries = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    REQUIRE(ibv_modify_qp(end.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | (isRc ? retries : 0)) == 0);
  }

 public:
  /// The device's own address.
  ibv_ah_attr Address() const {
    ibv_ah_attr attr{};
    attr.is_global = 1;
    attr.port_num = 1;
    REQUIRE(ibv_query_gid(device.context, 1, 0, &attr.grh.dgid) == 0);
    return attr;
  }

 private:
  const ibv_qp_type type_;
};
