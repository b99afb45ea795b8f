// How functions are called: arguments and results in bytes, as protocol-spec/conformance-codec.md has them, and what
// becomes of exceptions.
#pragma once

#include "runner.hpp"

namespace worker {

// Runs a task. Never throws: what goes wrong is the outcome. A Stopped that is no time limit has an outcome of no
// meaning, since whoever asked for it knows what to report.
Outcome call(const Batch& batch, const Bytes& arguments, const Control& control);

}  // namespace worker
