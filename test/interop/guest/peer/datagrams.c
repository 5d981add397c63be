/* Unreliable datagrams: address handles, groups, and the states of their queue pairs. */
#include "peer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static struct ibv_ah *ahs[MAX_OBJECTS];

static int gid_named(union ibv_gid *gid) {
    if (!text("gid")) return fail("gid= is missing");
    return from_hex(text("gid"), gid->raw, 16);
}

struct ibv_ah *ah_named(void) {
    uint64_t i = number("ah");
    if (!problem[0] && (i >= MAX_OBJECTS || !ahs[i])) fail("no ah");
    return problem[0] ? NULL : ahs[i];
}

void do_activate(void) {
    struct pair *p = pair_named();
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR}, rts = {.qp_state = IBV_QPS_RTS};
    if (!p) return;
    rts.sq_psn = p->psn;
    int error = ibv_modify_qp(p->qp, &rtr, IBV_QP_STATE);
    if (!error) error = ibv_modify_qp(p->qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
    if (error) refused("ibv_modify_qp", error);
    else printf("{}");
}

void do_ah(void) {
    union ibv_gid to = {{0}};
    int i = 0;
    while (i < MAX_OBJECTS && ahs[i]) i++;
    if (i == MAX_OBJECTS) fail("more than %d address handles", MAX_OBJECTS);
    gid_named(&to);
    struct ibv_ah_attr attr = {
        .is_global = 1,
        .port_num = 1,
        .grh = {.dgid = to, .sgid_index = gid_index, .hop_limit = number_or("hop", 64), .traffic_class = number_or("tclass", 0)},
    };
    if (problem[0]) return;
    if (!(ahs[i] = ibv_create_ah(pd, &attr))) refused("ibv_create_ah", errno);
    else printf("{\"ah\":%d}", i);
}

/* Joins a group at the IP level; without that the kernel drops its packets before rxe sees them. The socket lives until
   the program ends. */
static int join(const union ibv_gid *group) {
    static const uint8_t mapped[12] = {[10] = 0xff, 0xff};
    int is_ipv4 = !memcmp(group->raw, mapped, 12);
    struct group_req request = {.gr_interface = if_nametoindex("eth0")};
    if (is_ipv4) {
        struct sockaddr_in *to = (struct sockaddr_in *)&request.gr_group;
        to->sin_family = AF_INET;
        memcpy(&to->sin_addr, group->raw + 12, 4);
    } else {
        struct sockaddr_in6 *to = (struct sockaddr_in6 *)&request.gr_group;
        to->sin6_family = AF_INET6;
        memcpy(&to->sin6_addr, group->raw, 16);
    }
    int s = socket(is_ipv4 ? AF_INET : AF_INET6, SOCK_DGRAM, 0);
    if (s < 0 || setsockopt(s, is_ipv4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &request, sizeof request))
        return refused("MCAST_JOIN_GROUP", errno);
    return 1;
}

void do_attach(void) {
    struct pair *p = pair_named();
    union ibv_gid group = {{0}};
    gid_named(&group);
    if (!problem[0] && number_or("join", 1)) join(&group);
    if (problem[0]) return;
    int error = ibv_attach_mcast(p->qp, &group, 0);
    if (error) refused("ibv_attach_mcast", error);
    else printf("{}");
}
