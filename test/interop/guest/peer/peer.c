/*
 * rxpeer: a verbs program that executes commands. One command per line on standard input, `name key=value ...`;
 * one JSON object per line on standard output, {"error": "..."} if the command was wrong or refused. Numbers may be
 * decimal or 0x...; addresses in results are hexadecimal strings (64 bits do not fit a JSON number).
 *
 *   open [device=NAME] gid=INDEX          -> gid (32 hex digits), mtu (active MTU in bytes)
 *   reg size= access= [iova=]             -> mr, addr, lkey, rkey, size       zeroed memory; access: ibv_access_flags
 *   dereg mr=
 *   srq [wr=16 sge=1]                     -> srq           a receive queue that queue pairs may share
 *   modify_srq srq= [wr=] [limit=]        -> wr, limit     another size, or a limit that raises an event
 *   qp [sendwr= recvwr= sendsge= recvsge= inline= sigall= cqe= access= psn= ext= type=rc|uc|ud qkey= srq=]
 *                                         -> qp, qpn, psn   a new queue pair in INIT with its own CQ; RC by default;
 *                                                           ext=1: for post_ext as well
 *   connect qp= dqpn= dpsn= dgid= [mtu= timeout= retry= rnr= minrnr= rdatomic= destrdatomic= hop= tclass= flow=]
 *                                         to RTR and RTS; mtu in bytes
 *   activate qp=                          to RTR and RTS, for datagrams
 *   ah gid= [hop= tclass=]                -> ah            an address handle of a host or a group
 *   attach qp= gid= [join=1]              joins a group, and unless join=0 at the IP level as well
 *   modify qp= state=err|reset            -> state
 *   state qp=                             -> state (ibv_qp_state), sqpsn, rqpsn, retry, rnr ...
 *   destroy qp=
 *   post_recv qp=|srq= id= [sge=MR:OFFSET:LENGTH,...]
 *   post_send qp= id= op= [sge= raddr= rkey= imm= inv= compare= swap= add= flags=signaled,fence,solicited,inline]
 *             op: send send_imm send_inv write write_imm read cas faa local_inv
 *             [ah= dqpn= qkey=] for datagrams
 *   post_ext qp= id= op= raddr= rkey= [mr= off=] [len= sel=range|mr]
 *             op: atomic_write (the 8 bytes of mr at off), flush (placement global); signaled
 *   bind qp= id= mr= off= len= access=    -> rkey          posts a type 2 memory window bind, signaled
 *   poll qp= [n=1] [ms=1000]              -> wc: up to n completions, fewer after ms milliseconds
 *   event [ms=1000]                       -> event (ibv_event_type, or null when none came), qpn
 *   frame hex=                            sends a whole Ethernet frame from eth0
 *   fill mr= off= len= seed=              the bytes of pattern() below
 *   write mr= off= hex=    read mr= off= len= -> hex    crc mr= off= len= -> crc (CRC-32 as in zlib)
 *   quit
 */
#include "peer.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ibv_context *context;
struct ibv_pd *pd;
int gid_index;

static void do_open(void) {
    if (context) {
        fail("already open");
        return;
    }
    int n;
    char *name = text("device");
    struct ibv_device **list = ibv_get_device_list(&n), *device = NULL;
    for (int i = 0; list && i < n && !device; i++)
        if (!name || !strcmp(name, ibv_get_device_name(list[i]))) device = list[i];
    gid_index = number_or("gid", 1);
    union ibv_gid gid;
    struct ibv_port_attr port;
    if (!device) fail("no such device");
    else if (!(context = ibv_open_device(device))) refused("ibv_open_device", errno);
    else if (!(pd = ibv_alloc_pd(context))) refused("ibv_alloc_pd", errno);
    else if (ibv_query_gid(context, 1, gid_index, &gid)) refused("ibv_query_gid", errno);
    else if (ibv_query_port(context, 1, &port)) refused("ibv_query_port", errno);
    if (problem[0]) return;
    printf("{\"gid\":\"");
    print_hex(gid.raw, 16);
    printf("\",\"mtu\":%u}", 128u << port.active_mtu);
}

static void do_event(void) {
    struct pollfd waiting = {context->async_fd, POLLIN, 0};
    int ms = number_or("ms", 1000);
    struct ibv_async_event event;
    if (problem[0]) return;
    if (poll(&waiting, 1, ms) <= 0) {
        printf("{\"event\":null}");
        return;
    }
    if (ibv_get_async_event(context, &event)) {
        refused("ibv_get_async_event", errno);
        return;
    }
    enum ibv_event_type type = event.event_type;
    int of_qp = (type >= IBV_EVENT_QP_FATAL && type <= IBV_EVENT_PATH_MIG_ERR) || type == IBV_EVENT_QP_LAST_WQE_REACHED;
    printf("{\"event\":%d,\"name\":\"%s\",\"qpn\":%u}", type, ibv_event_type_str(type), of_qp ? event.element.qp->qp_num : 0);
    ibv_ack_async_event(&event);
}

static const struct {
    const char *name;
    void (*run)(void);
} table[] = {
    {"open", do_open},   {"reg", do_reg},         {"dereg", do_dereg},         {"qp", do_qp},               {"connect", do_connect},
    {"modify", do_modify}, {"state", do_state},   {"destroy", do_destroy},     {"post_recv", do_post_recv}, {"post_send", do_post_send},
    {"post_ext", do_post_extended}, {"bind", do_bind},   {"poll", do_poll},       {"event", do_event},         {"fill", do_fill},           {"write", do_write},
    {"activate", do_activate}, {"ah", do_ah},   {"attach", do_attach},   {"read", do_read},   {"crc", do_crc},
    {"srq", do_srq},     {"modify_srq", do_modify_srq}, {"frame", do_frame},
};

static void obey(void) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(words[0], table[i].name)) {
            if (context || table[i].run == do_open) table[i].run();
            else fail("open comes first");
            return;
        }
    fail("no command %s", words[0]);
}

int main(void) {
    char *line = NULL, *rest;
    size_t room = 0;
    srand(time(NULL) ^ getpid());
    while (getline(&line, &room, stdin) > 0) {
        problem[0] = 0, word_count = 0;
        for (char *word = strtok_r(line, " \t\n", &rest); word && word_count < MAX_WORDS; word = strtok_r(NULL, " \t\n", &rest))
            words[word_count++] = word;
        if (!word_count) continue;
        if (!strcmp(words[0], "quit")) break;
        obey();
        for (char *c = problem; *c; c++)
            if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ') *c = '?';
        if (problem[0]) printf("{\"error\":\"%s\"}", problem);
        printf("\n");
        fflush(stdout);
    }
    return 0;
}
