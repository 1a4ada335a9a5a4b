// journal.cpp: the file of records, see journal.h.
#include "journal.h"

#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

namespace lk::host {

namespace {

void write_all(int file, const char* data, size_t bytes) {
    while (bytes > 0) {
        const ssize_t written = ::write(file, data, bytes);
        if (written <= 0) return;
        data += written;
        bytes -= static_cast<size_t>(written);
    }
}

}  // namespace

Journal::Journal() {
    const char* path = getenv("LK_RECORDS");
    if (path) file_ = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

void Journal::write(const std::string& json_line, const std::vector<std::string>& sections) {
    if (file_ < 0) return;
    std::string all = json_line + "\n";
    for (const std::string& section : sections) all += section;
    write_all(file_, all.data(), all.size());
}

void Journal::note_once(const std::string& text) {
    if (!notes_.insert(text).second) return;
    fflush(stdout);
    fprintf(stderr, "labkit: %s\n", text.c_str());
    write("{\"record\": \"note\", \"text\": " + quoted(text) + "}");
}

Journal& journal() {
    static Journal the_journal;
    return the_journal;
}

std::string quoted(const std::string& text) {
    std::string json = "\"";
    for (const char each : text) {
        if (each == '"' || each == '\\') json += '\\';
        if (static_cast<unsigned char>(each) < 0x20) {
            char code[8];
            snprintf(code, sizeof code, "\\u%04x", each);
            json += code;
        } else {
            json += each;
        }
    }
    return json + "\"";
}

}  // namespace lk::host
