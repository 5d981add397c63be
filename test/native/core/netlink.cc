#include "core/netlink.h"

#include <doctest/doctest.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <cerrno>
#include <cstring>

#include "core/fd.h"

namespace {

struct Request {
  nlmsghdr header;
  rtgenmsg family;
};

Request Dump(uint16_t type) {
  Request request{};
  request.header.nlmsg_len = NLMSG_LENGTH(sizeof request.family);
  request.header.nlmsg_type = type;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  return request;
}

}  // namespace

TEST_CASE("the reply to a request is whole: its last message says so") {
  const Request request = Dump(RTM_GETLINK);
  std::vector<uint8_t> reply;
  REQUIRE(NetlinkExchange(NETLINK_ROUTE, reinterpret_cast<const uint8_t*>(&request), sizeof request, reply) == 0);
  uint16_t last = 0;
  size_t links = 0;
  for (size_t at = 0; at + sizeof(nlmsghdr) <= reply.size();) {
    nlmsghdr header;
    memcpy(&header, reply.data() + at, sizeof header);
    last = header.nlmsg_type;
    if (last == RTM_NEWLINK) links++;
    at += NLMSG_ALIGN(header.nlmsg_len);
  }
  CHECK(last == NLMSG_DONE);
  CHECK(links >= 1);
}

TEST_CASE("a protocol that the kernel lacks is an error, and notifications that do not come are -EAGAIN") {
  std::vector<uint8_t> reply;
  const Request request = Dump(RTM_GETLINK);
  CHECK(NetlinkExchange(31, reinterpret_cast<const uint8_t*>(&request), sizeof request, reply) < 0);
  int fd = NetlinkListen(RTMGRP_LINK);
  REQUIRE(fd >= 0);
  uint8_t bytes[4096];
  CHECK(NetlinkReceive(fd, bytes, sizeof bytes) == -EAGAIN);
  CloseFd(fd);
}
