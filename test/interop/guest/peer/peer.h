/* Shared by the parts of rxpeer; peer.c describes the program. */
#pragma once
#define _GNU_SOURCE
#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_OBJECTS = 64, MAX_SGE = 32 };
enum { ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

struct region {
    struct ibv_mr *mr; /* NULL = free */
    uint8_t *bytes;
    uint64_t size;
};
struct pair {
    struct ibv_qp *qp; /* NULL = free */
    struct ibv_cq *cq;
    uint32_t psn;
};

extern struct ibv_context *context;
extern struct ibv_pd *pd;
extern int gid_index;

/* words.c: one command and its error. Only the first error is reported; a command with an error prints nothing else. */
enum { MAX_WORDS = 64 };
extern char *words[MAX_WORDS];
extern int word_count;
extern char problem[256];
__attribute__((format(printf, 1, 2))) int fail(const char *format, ...); /* always 0 */
int refused(const char *what, int error);
char *text(const char *key); /* NULL when not given */
uint64_t number(const char *key);
uint64_t number_or(const char *key, uint64_t otherwise);
int from_hex(const char *hex, uint8_t *to, size_t length);
void print_hex(const uint8_t *bytes, size_t length);

/* regions.c */
struct region *region_at(uint64_t index, uint64_t offset, uint64_t length); /* NULL after fail when outside */

/* pairs.c */
struct pair *pair_named(void); /* by qp=; NULL after fail */

/* datagrams.c */
struct ibv_ah *ah_named(void); /* by ah=; NULL after fail */

/* queues.c */
struct ibv_srq *queue_named(void); /* by srq=; NULL after fail */

/* extended.c */
struct ibv_qp *create_extended(const struct ibv_qp_init_attr *like); /* NULL and errno when refused */

/* The commands: each prints its JSON object, or calls fail. */
void do_reg(void), do_dereg(void), do_fill(void), do_write(void), do_read(void), do_crc(void);
void do_activate(void), do_ah(void), do_attach(void), do_frame(void);
void do_srq(void), do_modify_srq(void);
void do_qp(void), do_connect(void), do_modify(void), do_state(void), do_destroy(void);
void do_post_recv(void), do_post_send(void), do_post_extended(void), do_bind(void), do_poll(void);
