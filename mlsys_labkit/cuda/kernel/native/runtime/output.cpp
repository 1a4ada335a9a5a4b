// output.cpp: where the text that kernels print goes, see output.h.
#include "output.h"

#include <cstdio>

namespace lk {

namespace {

void print_to_standard_output(const char* text, size_t bytes) { std::fwrite(text, 1, bytes, stdout); }

}  // namespace

void (*print_text)(const char* text, size_t bytes) = print_to_standard_output;

}  // namespace lk
