// Multicast groups.
#include <arpa/inet.h>

#include "pair.h"

namespace {

constexpr uint32_t kMulticastQpn = 0xffffff;

ibv_gid GroupOf(const char* address) {
  ibv_gid gid{};
  if (inet_pton(AF_INET6, address, gid.raw) == 1) return gid;
  gid.raw[10] = gid.raw[11] = 0xff;
  REQUIRE(inet_pton(AF_INET, address, gid.raw + 12) == 1);
  return gid;
}

/// Sends a byte to a group from an end.
void Send(Pair& pair, Pair::End& from, const ibv_gid& group) {
  ibv_ah_attr attr = pair.Address();
  attr.grh.dgid = group;
  attr.grh.hop_limit = 1;
  ibv_ah* ah = ibv_create_ah(pair.device.pd, &attr);
  REQUIRE(ah != nullptr);
  ibv_sge sge = Pair::Piece(from, 0, 1);
  ibv_send_wr request = pair.Request(IBV_WR_SEND, sge, from);
  request.wr.ud.ah = ah;
  request.wr.ud.remote_qpn = kMulticastQpn;
  request.wr.ud.remote_qkey = Pair::kQkey;
  REQUIRE(Pair::Post(from, request) == 0);
  CHECK(Completion(from.cq).status == IBV_WC_SUCCESS);
  CHECK(ibv_destroy_ah(ah) == 0);
}

}  // namespace

TEST_CASE("datagrams to a group reach its members until they leave") {
  const ibv_gid group = GroupOf("239.1.2.3");
  Pair pair(IBV_QPT_UD);
  CHECK(ibv_attach_mcast(pair.b.qp, &group, 0) == 0);
  CHECK(ibv_attach_mcast(pair.b.qp, &group, 0) == EINVAL);
  pair.Receive(pair.b, 1000, 100);
  pair.Receive(pair.b, 2000, 100);
  Send(pair, pair.a, group);
  CHECK(Completion(pair.b.cq).byte_len == 41);
  CHECK(ibv_detach_mcast(pair.b.qp, &group, 0) == 0);
  CHECK(ibv_detach_mcast(pair.b.qp, &group, 0) == EINVAL);
  Send(pair, pair.a, group);
  ibv_wc wc;
  CHECK(ibv_poll_cq(pair.b.cq, 1, &wc) == 0);
}

TEST_CASE("a queue pair leaves its groups when it is destroyed") {
  const ibv_gid group = GroupOf("239.1.2.4");
  {
    Pair pair(IBV_QPT_UD);
    CHECK(ibv_attach_mcast(pair.b.qp, &group, 0) == 0);
  }
  Pair pair(IBV_QPT_UD);
  CHECK(ibv_attach_mcast(pair.a.qp, &group, 0) == 0);
  pair.Receive(pair.a, 1000, 100);
  Send(pair, pair.b, group);
  CHECK(Completion(pair.a.cq).status == IBV_WC_SUCCESS);
}

TEST_CASE("only queue pairs for datagrams join groups") {
  const ibv_gid group = GroupOf("239.1.2.5");
  Pair pair;
  CHECK(ibv_attach_mcast(pair.a.qp, &group, 0) == EINVAL);
}
