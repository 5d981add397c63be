/* Queue pairs and their states. */
#include "peer.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct pair pairs[MAX_OBJECTS];

struct pair *pair_named(void) {
    uint64_t i = number("qp");
    if (!problem[0] && (i >= MAX_OBJECTS || !pairs[i].qp)) fail("no qp %" PRIu64, i);
    return problem[0] ? NULL : &pairs[i];
}

static enum ibv_qp_type type_named(void) {
    char *type = text("type");
    if (!type || !strcmp(type, "rc")) return IBV_QPT_RC;
    if (!strcmp(type, "uc")) return IBV_QPT_UC;
    if (!strcmp(type, "ud")) return IBV_QPT_UD;
    fail("type= is none of rc uc ud");
    return IBV_QPT_RC;
}

static enum ibv_mtu mtu_code(uint64_t bytes) {
    for (int code = IBV_MTU_256; code <= IBV_MTU_4096; code++)
        if (bytes == 128u << code) return code;
    fail("mtu %" PRIu64 " is none of 256, 512, 1024, 2048, 4096", bytes);
    return IBV_MTU_256;
}

void do_qp(void) {
    struct pair *p = pairs;
    while (p < pairs + MAX_OBJECTS && p->qp) p++;
    if (p == pairs + MAX_OBJECTS) fail("more than %d queue pairs", MAX_OBJECTS);
    struct ibv_qp_init_attr init = {
        .cap = {number_or("sendwr", 64), number_or("recvwr", 64), number_or("sendsge", 4), number_or("recvsge", 4), number_or("inline", 0)},
        .qp_type = type_named(),
        .sq_sig_all = number_or("sigall", 0),
        .srq = text("srq") ? queue_named() : NULL,
    };
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = number_or("access", ALL_ACCESS), .qkey = number_or("qkey", 0)};
    int own = init.qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
    uint64_t entries = number_or("cqe", init.cap.max_send_wr + init.cap.max_recv_wr);
    if (problem[0]) return;
    if (!(p->cq = ibv_create_cq(context, entries, NULL, NULL, 0))) {
        refused("ibv_create_cq", errno);
        return;
    }
    init.send_cq = init.recv_cq = p->cq;
    int error;
    p->qp = number_or("ext", 0) ? create_extended(&init) : ibv_create_qp(pd, &init);
    if (!p->qp) refused("ibv_create_qp", errno);
    else if ((error = ibv_modify_qp(p->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | own)))
        refused("ibv_modify_qp to INIT", error);
    if (problem[0]) {
        if (p->qp) ibv_destroy_qp(p->qp);
        ibv_destroy_cq(p->cq);
        *p = (struct pair){0};
        return;
    }
    p->psn = number_or("psn", rand() & 0xffffff);
    printf("{\"qp\":%d,\"qpn\":%u,\"psn\":%u}", (int)(p - pairs), p->qp->qp_num, p->psn);
}

void do_connect(void) {
    struct pair *p = pair_named();
    union ibv_gid to = {{0}};
    if (!text("dgid")) fail("dgid= is missing");
    else from_hex(text("dgid"), to.raw, 16);
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mtu_code(number_or("mtu", 1024)),
        .dest_qp_num = number("dqpn"),
        .rq_psn = number("dpsn"),
        .max_dest_rd_atomic = number_or("destrdatomic", 4),
        .min_rnr_timer = number_or("minrnr", 12),
        .ah_attr = {.is_global = 1,
                    .port_num = 1,
                    .grh = {.dgid = to,
                            .sgid_index = gid_index,
                            .hop_limit = number_or("hop", 64),
                            .traffic_class = number_or("tclass", 0),
                            .flow_label = number_or("flow", 0)}},
    };
    struct ibv_qp_attr rts = {
        .qp_state = IBV_QPS_RTS,
        .timeout = number_or("timeout", 14),
        .retry_cnt = number_or("retry", 7),
        .rnr_retry = number_or("rnr", 7),
        .max_rd_atomic = number_or("rdatomic", 4),
    };
    if (problem[0]) return;
    rts.sq_psn = p->psn;
    int rc = p->qp->qp_type == IBV_QPT_RC;
    int error = ibv_modify_qp(p->qp, &rtr,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                  (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0));
    if (error) {
        refused("ibv_modify_qp to RTR", error);
        return;
    }
    error = ibv_modify_qp(p->qp, &rts,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0));
    if (error) refused("ibv_modify_qp to RTS", error);
    else printf("{}");
}

void do_modify(void) {
    struct pair *p = pair_named();
    char *state = text("state");
    struct ibv_qp_attr attr = {.qp_state = state && !strcmp(state, "reset") ? IBV_QPS_RESET : IBV_QPS_ERR};
    if (!state || (strcmp(state, "reset") && strcmp(state, "err"))) fail("state= is neither err nor reset");
    if (problem[0]) return;
    int error = ibv_modify_qp(p->qp, &attr, IBV_QP_STATE);
    if (error) refused("ibv_modify_qp", error);
    else printf("{\"state\":%d}", attr.qp_state);
}

void do_state(void) {
    struct pair *p = pair_named();
    struct ibv_qp_attr a;
    struct ibv_qp_init_attr init;
    if (!p) return;
    int error = ibv_query_qp(p->qp, &a,
                             IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_SQ_PSN | IBV_QP_RQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_CAP, &init);
    if (error) refused("ibv_query_qp", error);
    else
        printf("{\"state\":%d,\"mtu\":%u,\"sqpsn\":%u,\"rqpsn\":%u,\"retry\":%u,\"rnr\":%u,\"inline\":%u}", a.qp_state, 128u << a.path_mtu,
               a.sq_psn & 0xffffff, a.rq_psn & 0xffffff, a.retry_cnt, a.rnr_retry, a.cap.max_inline_data);
}

void do_destroy(void) {
    struct pair *p = pair_named();
    if (!p) return;
    int error = ibv_destroy_qp(p->qp);
    if (error) {
        refused("ibv_destroy_qp", error);
        return;
    }
    ibv_destroy_cq(p->cq);
    *p = (struct pair){0};
    printf("{}");
}
