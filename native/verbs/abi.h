// The public ABI of libibverbs. Its inline functions call the tables of a context; its macros would hide the functions
// that this library defines.
#pragma once
#include <infiniband/verbs.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/// A function that programs call by its name.
#define VERBS_API extern "C" __attribute__((visibility("default")))
