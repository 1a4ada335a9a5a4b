// cpu_bitmap.h: the image of "CUDA by Example". There is no window: the image is written to a file beside the program.
#pragma once

#include <cstdio>
#include <vector>

struct CPUBitmap {
    std::vector<unsigned char> pixels;  // red, green, blue, alpha; the bottom row first, as OpenGL has it
    int x;
    int y;
    void* dataBlock;
    void (*bitmapExit)(void*) = nullptr;

    CPUBitmap(int width, int height, void* data = nullptr)
        : pixels(static_cast<size_t>(width) * height * 4), x(width), y(height), dataBlock(data) {}

    unsigned char* get_ptr() { return pixels.data(); }
    long image_size() const { return static_cast<long>(pixels.size()); }

    void display_and_exit(void (*on_exit)(void*) = nullptr) {
        if (FILE* file = std::fopen("bitmap.ppm", "wb")) {
            std::fprintf(file, "P6 %d %d 255\n", x, y);
            for (int row = y - 1; row >= 0; --row) {
                for (int column = 0; column < x; ++column) {
                    std::fwrite(&pixels[(static_cast<size_t>(row) * x + column) * 4], 1, 3, file);
                }
            }
            std::fclose(file);
        }
        std::fprintf(stderr, "labkit: the image is in bitmap.ppm; there is no window\n");
        if (on_exit) on_exit(dataBlock);
    }
};
