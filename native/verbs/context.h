// The tables of a context, by which inline functions of libibverbs call this library: each file sets what it defines.
// An operation that stays null is refused with EOPNOTSUPP.
#pragma once

struct Context;

void SetMemoryOperations(Context& context);
void SetCqOperations(Context& context);
void SetQpOperations(Context& context);
void SetSrqOperations(Context& context);
void SetPostOperations(Context& context);
