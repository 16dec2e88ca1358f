#pragma once
// ConvertOptions from the `options` of a case of ../shared/golden/codec. A pure function.

#include <boost/json/fwd.hpp>

#include "codec/api/convert.h"

namespace artery::codec::api {

ConvertOptions recipe_options(const boost::json::object& options);

}  // namespace artery::codec::api
