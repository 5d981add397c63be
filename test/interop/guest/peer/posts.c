/* Posting work requests and polling completions. */
#include "peer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MAX_POLL = 4096 };
/* rxe passes the kernel's IB_WC_WITH_INVALIDATE to user space, where this bit means IP_CSUM_OK. */
enum { RXE_WITH_INV = 4 };

static int sge_list(struct ibv_sge *list) {
    int n = 0;
    char *value = text("sge"), *rest;
    for (char *one = value ? strtok_r(value, ",", &rest) : NULL; one; one = strtok_r(NULL, ",", &rest)) {
        unsigned long long i, offset, length;
        char extra;
        if (sscanf(one, "%llu:%llu:%llu%c", &i, &offset, &length, &extra) != 3) return fail("sge %s is not MR:OFFSET:LENGTH", one);
        if (n == MAX_SGE) return fail("more than %d pieces", MAX_SGE);
        struct region *r = region_at(i, offset, length);
        if (!r) return 0;
        list[n++] = (struct ibv_sge){(uintptr_t)r->mr->addr + offset, length, r->mr->lkey};
    }
    return n;
}

void do_post_recv(void) {
    struct ibv_srq *queue = text("srq") ? queue_named() : NULL;
    struct pair *p = queue ? NULL : pair_named();
    struct ibv_sge list[MAX_SGE];
    struct ibv_recv_wr wr = {.wr_id = number("id"), .sg_list = list, .num_sge = sge_list(list)}, *bad;
    if (problem[0]) return;
    int error = queue ? ibv_post_srq_recv(queue, &wr, &bad) : ibv_post_recv(p->qp, &wr, &bad);
    if (error) refused(queue ? "ibv_post_srq_recv" : "ibv_post_recv", error);
    else printf("{}");
}

static const struct {
    const char *name;
    enum ibv_wr_opcode opcode;
} operations[] = {
    {"send", IBV_WR_SEND},         {"send_imm", IBV_WR_SEND_WITH_IMM},        {"send_inv", IBV_WR_SEND_WITH_INV},
    {"write", IBV_WR_RDMA_WRITE},  {"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM}, {"read", IBV_WR_RDMA_READ},
    {"cas", IBV_WR_ATOMIC_CMP_AND_SWP}, {"faa", IBV_WR_ATOMIC_FETCH_AND_ADD}, {"local_inv", IBV_WR_LOCAL_INV},
};

static unsigned send_flags(void) {
    static const struct {
        const char *name;
        unsigned flag;
    } names[] = {{"signaled", IBV_SEND_SIGNALED}, {"fence", IBV_SEND_FENCE}, {"solicited", IBV_SEND_SOLICITED}, {"inline", IBV_SEND_INLINE}};
    unsigned flags = 0;
    char *value = text("flags"), *rest;
    for (char *one = value ? strtok_r(value, ",", &rest) : NULL; one; one = strtok_r(NULL, ",", &rest)) {
        unsigned flag = 0;
        for (int i = 0; i < 4; i++)
            if (!strcmp(one, names[i].name)) flag = names[i].flag;
        if (!flag) fail("no flag %s", one);
        flags |= flag;
    }
    return flags;
}

void do_post_send(void) {
    struct pair *p = pair_named();
    struct ibv_sge list[MAX_SGE];
    struct ibv_send_wr wr = {.wr_id = number("id"), .sg_list = list, .num_sge = sge_list(list), .send_flags = send_flags()}, *bad;
    char *op = text("op");
    int known = 0;
    for (size_t i = 0; op && i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(op, operations[i].name)) known = 1, wr.opcode = operations[i].opcode;
    if (!known) fail("op= is none of send send_imm send_inv write write_imm read cas faa local_inv");
    if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
        wr.wr.atomic.remote_addr = number("raddr"), wr.wr.atomic.rkey = number("rkey");
        wr.wr.atomic.compare_add = wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? number("compare") : number("add");
        wr.wr.atomic.swap = number_or("swap", 0);
    } else if (text("ah")) {
        wr.wr.ud.ah = ah_named(), wr.wr.ud.remote_qpn = number("dqpn"), wr.wr.ud.remote_qkey = number("qkey");
    } else {
        wr.wr.rdma.remote_addr = number_or("raddr", 0), wr.wr.rdma.rkey = number_or("rkey", 0);
    }
    if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV) wr.invalidate_rkey = number("inv");
    else wr.imm_data = htonl(number_or("imm", 0));
    if (problem[0]) return;
    int error = ibv_post_send(p->qp, &wr, &bad);
    if (error) refused("ibv_post_send", error);
    else printf("{}");
}

void do_bind(void) {
    struct pair *p = pair_named();
    uint64_t i = number("mr"), offset = number("off"), length = number("len"), access = number("access"), id = number("id");
    struct region *r = problem[0] ? NULL : region_at(i, offset, length);
    if (problem[0]) return;
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2); /* lives until the program ends */
    if (!mw) {
        refused("ibv_alloc_mw", errno);
        return;
    }
    struct ibv_send_wr wr = {.wr_id = id, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.bind_mw.mw = mw, wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){r->mr, (uintptr_t)r->bytes + offset, length, access};
    int error = ibv_post_send(p->qp, &wr, &bad);
    if (error) refused("ibv_post_send of the bind", error);
    else printf("{\"rkey\":%u}", wr.bind_mw.rkey);
}

static int64_t milliseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

void do_poll(void) {
    struct pair *p = pair_named();
    uint64_t wanted = number_or("n", 1);
    int64_t end = milliseconds() + number_or("ms", 1000);
    static struct ibv_wc all[MAX_POLL];
    if (wanted > MAX_POLL) fail("n is more than %d", MAX_POLL);
    if (problem[0]) return;
    uint64_t n = 0;
    while (n < wanted) {
        int got = ibv_poll_cq(p->cq, wanted - n, all + n);
        if (got < 0) {
            fail("ibv_poll_cq failed");
            return;
        }
        n += got;
        if (!got && milliseconds() >= end) break;
        if (!got) usleep(50); /* spinning on an emulated CPU would delay the kernel */
    }
    printf("{\"wc\":[");
    for (uint64_t i = 0; i < n; i++) {
        struct ibv_wc *w = all + i;
        int imm = !w->status && w->wc_flags & IBV_WC_WITH_IMM, inv = !w->status && w->wc_flags & (IBV_WC_WITH_INV | RXE_WITH_INV);
        printf("%s{\"id\":%" PRIu64 ",\"status\":%d,\"opcode\":%d,\"byteLen\":%u,\"flags\":%u,\"imm\":%u,\"inv\":%u,\"qpn\":%u,\"srcQp\":%u,\"vendorErr\":%u}",
               i ? "," : "", w->wr_id, w->status, w->opcode, w->byte_len, w->wc_flags, imm ? ntohl(w->imm_data) : 0, inv ? w->invalidated_rkey : 0,
               w->qp_num, w->src_qp, w->vendor_err);
    }
    printf("]}");
}
