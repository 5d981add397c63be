/* Operations of the extended posting interface of verbs: ATOMIC WRITE and FLUSH, which newer rdma-core has. */
#include "peer.h"
#include <stdio.h>
#include <string.h>

#ifdef HAS_FLUSH
struct ibv_qp *create_extended(const struct ibv_qp_init_attr *like) {
    struct ibv_qp_init_attr_ex init = {
        .send_cq = like->send_cq,
        .recv_cq = like->recv_cq,
        .cap = like->cap,
        .srq = like->srq,
        .qp_type = like->qp_type,
        .sq_sig_all = like->sq_sig_all,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .pd = pd,
        .send_ops_flags = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE,
    };
    return ibv_create_qp_ex(context, &init);
}

void do_post_extended(void) {
    struct pair *p = pair_named();
    uint64_t id = number("id"), address = number("raddr"), rkey = number("rkey");
    char *op = text("op"), *selectivity = text("sel");
    int is_flush = op && !strcmp(op, "flush"), is_write = op && !strcmp(op, "atomic_write");
    struct region *r = NULL;
    uint64_t offset = number_or("off", 0), length = number_or("len", 0);
    if (!is_flush && !is_write) fail("op= is neither atomic_write nor flush");
    if (is_write) {
        uint64_t mr = number("mr");
        r = problem[0] ? NULL : region_at(mr, offset, 8);
    }
    struct ibv_qp_ex *qp = problem[0] ? NULL : ibv_qp_to_qp_ex(p->qp);
    if (!problem[0] && !qp) fail("the qp was not made with ext=1");
    if (problem[0]) return;
    ibv_wr_start(qp);
    qp->wr_id = id, qp->wr_flags = IBV_SEND_SIGNALED;
    if (is_write) ibv_wr_atomic_write(qp, rkey, address, r->bytes + offset);
    else ibv_wr_flush(qp, rkey, address, length, IBV_FLUSH_GLOBAL, selectivity && !strcmp(selectivity, "mr") ? IBV_FLUSH_MR : IBV_FLUSH_RANGE);
    int error = ibv_wr_complete(qp);
    if (error) refused("ibv_wr_complete", error);
    else printf("{}");
}
#else
struct ibv_qp *create_extended(const struct ibv_qp_init_attr *like) {
    struct ibv_qp_init_attr init = *like;
    return ibv_create_qp(pd, &init);
}

void do_post_extended(void) { fail("the verbs of this guest have neither ATOMIC WRITE nor FLUSH"); }
#endif
