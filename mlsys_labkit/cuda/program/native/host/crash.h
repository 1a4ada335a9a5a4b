// crash.h: what a crash of host code leaves for the student: one record that says where, and what the address was.
#pragma once

namespace lk::host {

// For the faults that end a program. The engine's own handlers go first while a kernel runs.
void watch_for_crashes();

}  // namespace lk::host
