// settings.h: the settings of a run, in environment variables because argv belongs to the student.
#pragma once

#include <cstdint>

#include "engine.h"

namespace lk::host {

struct Settings {
    Mode mode = Mode::run;              // LK_MODE: run, check, profile
    uint64_t launch_limit = UINT64_MAX;  // LK_LAUNCH_LIMIT
    uint64_t profile_limit = 100;       // LK_PROFILE_LIMIT: launches whose counts are kept
    double seconds = 60;                // LK_SECONDS: of the whole program
    uint64_t seed = 0;                  // LK_SEED
};

const Settings& settings();
// What is left of the program's time.
double seconds_left();

constexpr int exit_after_launch_limit = 124;

}  // namespace lk::host
