// output.h: where the text that kernels print goes.
#pragma once

#include <cstddef>

namespace lk {

// Safe from any thread. Standard output, unless the worker has set it to the notebook's cell.
extern void (*print_text)(const char* text, size_t bytes);

}  // namespace lk
