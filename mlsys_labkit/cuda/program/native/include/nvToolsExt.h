// nvToolsExt.h: marks for profilers' timelines. There is no timeline here, so they do nothing.
#pragma once

#include <cstdint>

enum { NVTX_VERSION = 3, NVTX_EVENT_ATTRIB_STRUCT_SIZE = 48, NVTX_COLOR_ARGB = 1, NVTX_MESSAGE_TYPE_ASCII = 1 };

typedef uint64_t nvtxRangeId_t;

struct nvtxEventAttributes_t {
    uint16_t version;
    uint16_t size;
    uint32_t category;
    int32_t colorType;
    uint32_t color;
    int32_t payloadType;
    int32_t messageType;
    union {
        const char* ascii;
    } message;
};

inline int nvtxRangePush(const char*) { return 0; }

inline int nvtxRangePushA(const char*) { return 0; }

inline int nvtxRangePushEx(const nvtxEventAttributes_t*) { return 0; }

inline int nvtxRangePop() { return 0; }

inline nvtxRangeId_t nvtxRangeStartA(const char*) { return 0; }

inline void nvtxRangeEnd(nvtxRangeId_t) {}

inline void nvtxMark(const char*) {}

inline void nvtxMarkA(const char*) {}

inline void nvtxNameOsThreadA(uint32_t, const char*) {}
