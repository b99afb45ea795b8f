// The functions that this worker serves by name.
#pragma once

#include "library/worker.hpp"

namespace served {

worker::Functions functions();

}  // namespace served
