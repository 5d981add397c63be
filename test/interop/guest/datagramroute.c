// Preloaded for programs of datagram rsockets. librdmacm makes the address handle of its own queue pair without a
// global route, and the kernel refuses that on Ethernet. This adds the route. ROUTE_GID is the index of the own GID.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *(*create)(struct ibv_pd *, struct ibv_ah_attr *) = dlvsym(RTLD_NEXT, "ibv_create_ah", "IBVERBS_1.1");
	struct ibv_ah_attr routed = *attr;
	const char *index = getenv("ROUTE_GID");

	if (!routed.is_global) {
		routed.is_global = 1;
		routed.grh.hop_limit = 1;
		routed.grh.sgid_index = index ? atoi(index) : 0;
		if (ibv_query_gid(pd->context, routed.port_num, routed.grh.sgid_index, &routed.grh.dgid))
			return NULL;
	}
	return create(pd, &routed);
}
