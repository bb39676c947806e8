// All kernels, emulated on the host: see platform.h.
#include "platform.h"
#include "types.h"

#include "dequantize.h"
#include "rows.h"
#if __has_include("products.h")
#include "products.h"
#endif
#if __has_include("attention.h")
#include "attention.h"
#endif
#if __has_include("states.h")
#include "states.h"
#endif
