// settings.cpp: see settings.h.
#include "settings.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

namespace lk::host {

namespace {

using Clock = std::chrono::steady_clock;

const Clock::time_point started = Clock::now();

std::string variable(const char* name, const char* otherwise) {
    const char* value = getenv(name);
    return value && *value ? value : otherwise;
}

Settings read() {
    Settings chosen;
    const std::string mode = variable("LK_MODE", "run");
    chosen.mode = mode == "check" ? Mode::check : mode == "profile" ? Mode::profile : Mode::run;
    chosen.launch_limit = std::stoull(variable("LK_LAUNCH_LIMIT", "18446744073709551615"));
    chosen.profile_limit = std::stoull(variable("LK_PROFILE_LIMIT", "100"));
    chosen.seconds = std::stod(variable("LK_SECONDS", "60"));
    chosen.seed = std::stoull(variable("LK_SEED", "0"));
    return chosen;
}

}  // namespace

const Settings& settings() {
    static const Settings chosen = read();
    return chosen;
}

double seconds_left() {
    const double passed = std::chrono::duration<double>(Clock::now() - started).count();
    return std::max(0.0, settings().seconds - passed);
}

}  // namespace lk::host
