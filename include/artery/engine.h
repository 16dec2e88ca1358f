#pragma once
// Artery as a library: what a program needs to load a model and generate from it in its own
// process. examples/offline_inference.cc shows the whole way; the order of things is
//
//   GgufFile::open -> ComputePool, make_fast_backend -> load_model -> make_engine -> submit, wait
//
// Link artery::engine, artery::model and artery::codec. Threads: an Engine is used from any
// thread; see each header for the rest. The names below live in artery::engine, artery::model,
// artery::tensor and artery::codec.

#include "base/result.h"
#include "codec/tokenizer.h"
#include "engine/engine.h"
#include "model/format/gguf.h"
#include "model/load.h"
#include "tensor/backend.h"
#include "tensor/compute_pool.h"
#include "tensor/isa.h"
