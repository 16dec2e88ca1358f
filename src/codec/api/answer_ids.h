#pragma once
// Ids of the calls in an answer (R8 of ../shared/golden/codec/README-outputs.md). Any thread.

#include <cstdint>
#include <string>

#include "codec/api/output_sink.h"

namespace artery::codec::api {

// call_NN_ and a random tail; call_NN_ET_... when an answer that should begin with thoughts has
// none. `number`: of the call in its answer, from 0.
std::string make_call_id(std::size_t number, bool empty_thoughts, IdSource& ids);

}  // namespace artery::codec::api
