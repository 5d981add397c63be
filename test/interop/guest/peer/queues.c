/* Shared receive queues. They live until the program ends. */
#include "peer.h"
#include <errno.h>
#include <stdio.h>

static struct ibv_srq *queues[MAX_OBJECTS];

struct ibv_srq *queue_named(void) {
    uint64_t i = number("srq");
    if (!problem[0] && (i >= MAX_OBJECTS || !queues[i])) fail("no srq");
    return problem[0] ? NULL : queues[i];
}

void do_srq(void) {
    int i = 0;
    while (i < MAX_OBJECTS && queues[i]) i++;
    if (i == MAX_OBJECTS) fail("more than %d shared receive queues", MAX_OBJECTS);
    struct ibv_srq_init_attr init = {.attr = {.max_wr = number_or("wr", 16), .max_sge = number_or("sge", 1)}};
    if (problem[0]) return;
    if (!(queues[i] = ibv_create_srq(pd, &init))) refused("ibv_create_srq", errno);
    else printf("{\"srq\":%d}", i);
}

void do_modify_srq(void) {
    struct ibv_srq *queue = queue_named();
    struct ibv_srq_attr attr = {.max_wr = number_or("wr", 0), .srq_limit = number_or("limit", 0)};
    if (!queue || problem[0]) return;
    int error = ibv_modify_srq(queue, &attr, (text("wr") ? IBV_SRQ_MAX_WR : 0) | (text("limit") ? IBV_SRQ_LIMIT : 0));
    if (error) refused("ibv_modify_srq", error);
    else if ((error = ibv_query_srq(queue, &attr))) refused("ibv_query_srq", error);
    else printf("{\"wr\":%u,\"limit\":%u}", attr.max_wr, attr.srq_limit);
}
