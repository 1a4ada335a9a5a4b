// kernel.h: what stands before a kernel's source (a whole program has its own).
//
// <iostream> without the object that every file that includes it gets: loading a kernel runs no code at all, and that is how a
// graded kernel can be held to it.
#pragma once

#include "lk/libc.h"  // before anything that calls what it renames

#include <istream>
#include <ostream>

#define _GLIBCXX_IOSTREAM 1  // the include guard of <iostream>, in every libstdc++ so far
namespace std {
extern istream cin;
extern ostream cout;
extern ostream cerr;
extern ostream clog;
}  // namespace std

#include "lk/prelude.h"

#include "lk/export.h"
