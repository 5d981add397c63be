#include <fcntl.h>
#include <poll.h>
#include <atomic>
#include <thread>

#include "pair.h"

namespace {

bool IsReadable(int fd, int milliseconds) {
  pollfd one{fd, POLLIN, 0};
  return poll(&one, 1, milliseconds) == 1;
}

/// A completion queue with a channel. Its context is this object.
struct Channel {
  explicit Channel(const Device& device) : channel(ibv_create_comp_channel(device.context)) {
    REQUIRE(channel != nullptr);
    cq = ibv_create_cq(device.context, 16, this, channel, 0);
    REQUIRE(cq != nullptr);
  }
  ibv_comp_channel* channel;
  ibv_cq* cq;
};

}  // namespace

TEST_CASE("a channel with a queue, and objects in use, cannot be destroyed") {
  Device device;
  Channel own(device);
  CHECK(ibv_destroy_comp_channel(own.channel) == EBUSY);
  ibv_mr* mr = ibv_reg_mr(device.pd, &own, sizeof own, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(mr != nullptr);
  CHECK(ibv_dealloc_pd(device.pd) == EBUSY);
  CHECK(ibv_dereg_mr(mr) == 0);
  CHECK(ibv_destroy_cq(own.cq) == 0);
  CHECK(ibv_destroy_comp_channel(own.channel) == 0);
}

TEST_CASE("an armed queue makes its channel readable once, while the program only waits") {
  Pair pair;
  Channel own(pair.device);
  const auto [channel, cq] = own;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_UD;
  ibv_qp* qp = ibv_create_qp(pair.device.pd, &init);
  REQUIRE(qp != nullptr);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = Pair::kQkey;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY) == 0);
  ibv_recv_wr receive{}, *bad;
  REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
  CHECK_FALSE(IsReadable(channel->fd, 0));
  REQUIRE(ibv_post_recv(qp, &receive, &bad) == 0);
  // in state ERR the receive is flushed
  attr.qp_state = IBV_QPS_ERR;
  REQUIRE(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
  REQUIRE(IsReadable(channel->fd, 5000));
  ibv_cq* ready;
  void* context;
  REQUIRE(ibv_get_cq_event(channel, &ready, &context) == 0);
  CHECK(ready == cq);
  CHECK(context == &own);
  CHECK_FALSE(IsReadable(channel->fd, 0));
  CHECK(Completion(cq).status == IBV_WC_WR_FLUSH_ERR);
  ibv_ack_cq_events(cq, 1);
  CHECK(ibv_destroy_qp(qp) == 0);
  CHECK(ibv_destroy_cq(cq) == 0);
  CHECK(ibv_destroy_comp_channel(channel) == 0);
}

TEST_CASE("a channel without events refuses a read that must not block") {
  Device device;
  Channel own(device);
  REQUIRE(fcntl(own.channel->fd, F_SETFL, O_NONBLOCK) == 0);
  ibv_cq* cq;
  void* context;
  CHECK(ibv_get_cq_event(own.channel, &cq, &context) == -1);
  CHECK(errno == EAGAIN);
  CHECK(ibv_destroy_cq(own.cq) == 0);
  CHECK(ibv_destroy_comp_channel(own.channel) == 0);
}

TEST_CASE("destroying an object waits until its events are acknowledged") {
  Pair pair;
  ibv_sge sge = Pair::Piece(pair.a, 0, 8);
  ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b, Pair::kBytes);
  REQUIRE(Pair::Post(pair.a, request) == 0);
  ibv_async_event event;
  REQUIRE(ibv_get_async_event(pair.device.context, &event) == 0);
  ibv_qp* const qp = pair.b.qp;
  std::atomic<bool> isDestroyed{false};
  std::thread destroyer([&] {
    ibv_destroy_qp(qp);
    isDestroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(isDestroyed);
  ibv_ack_async_event(&event);
  destroyer.join();
  // the pair destroys it, too
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = pair.b.cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  pair.b.qp = ibv_create_qp(pair.device.pd, &init);
}

TEST_CASE("threads post to one queue pair and poll one queue at the same time") {
  constexpr int kThreads = 4, kEach = 500;
  Pair pair;
  std::atomic<int> completed{0}, posted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; i++) {
    threads.emplace_back([&] {
      ibv_sge sge = Pair::Piece(pair.a, 0, 64);
      for (int left = kEach; left > 0;) {
        ibv_send_wr request = pair.Request(IBV_WR_RDMA_WRITE, sge, pair.b);
        if (Pair::Post(pair.a, request) == 0) {
          left--;
          posted++;
        }
        ibv_wc wc;
        if (ibv_poll_cq(pair.a.cq, 1, &wc) > 0 && wc.status == IBV_WC_SUCCESS) completed++;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (completed < posted) {
    CHECK(Completion(pair.a.cq).status == IBV_WC_SUCCESS);
    completed++;
  }
  CHECK(posted == kThreads * kEach);
}
