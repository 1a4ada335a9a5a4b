// cpu_anim.h: the animation of "CUDA by Example", of which one frame is computed and written to a file.
#pragma once

#include "cpu_bitmap.h"

struct CPUAnimBitmap : CPUBitmap {
    int width;
    int height;

    CPUAnimBitmap(int w, int h, void* data = nullptr) : CPUBitmap(w, h, data), width(w), height(h) {}

    void click_drag(void (*)(void*, int, int, int, int)) {}

    void anim_and_exit(void (*frame)(void*, int), void (*on_exit)(void*)) {
        frame(dataBlock, 1);
        display_and_exit(on_exit);
    }
};
