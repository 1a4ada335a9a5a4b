// helper_timer.h: the stopwatch of the CUDA samples. It tells the simulator's time, not a GPU's.
#pragma once

#include <chrono>

class StopWatchInterface {
public:
    void start() { begun_ = Clock::now(); }
    void stop() {
        total_ms_ += std::chrono::duration<float, std::milli>(Clock::now() - begun_).count();
        ++sessions_;
    }
    void reset() {
        total_ms_ = 0;
        sessions_ = 0;
        start();
    }
    float getTime() const { return total_ms_; }
    float getAverageTime() const { return sessions_ ? total_ms_ / static_cast<float>(sessions_) : 0.0f; }

private:
    using Clock = std::chrono::steady_clock;
    Clock::time_point begun_ = Clock::now();
    float total_ms_ = 0;
    int sessions_ = 0;
};

inline bool sdkCreateTimer(StopWatchInterface** timer) {
    *timer = new StopWatchInterface;
    return true;
}

inline bool sdkDeleteTimer(StopWatchInterface** timer) {
    delete *timer;
    *timer = nullptr;
    return true;
}

inline bool sdkStartTimer(StopWatchInterface** timer) {
    (*timer)->start();
    return true;
}

inline bool sdkStopTimer(StopWatchInterface** timer) {
    (*timer)->stop();
    return true;
}

inline bool sdkResetTimer(StopWatchInterface** timer) {
    (*timer)->reset();
    return true;
}

inline float sdkGetTimerValue(StopWatchInterface** timer) { return (*timer)->getTime(); }

inline float sdkGetAverageTimerValue(StopWatchInterface** timer) { return (*timer)->getAverageTime(); }
