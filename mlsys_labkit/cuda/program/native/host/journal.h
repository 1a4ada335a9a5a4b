// journal.h: the records of a program's run for the notebook: launches, findings, profiles and notes, one file, in order.
//
// Each record is a line of JSON; a launch's line gives the lengths of the arrays of structs that follow it as bytes.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

namespace lk::host {

class Journal {
public:
    // The file named by LK_RECORDS; without it, records go nowhere.
    Journal();

    void write(const std::string& json_line, const std::vector<std::string>& sections = {});
    // A line for the student on stderr, once for each text, and in the result.
    void note_once(const std::string& text);
    // For signal handlers: the file descriptor, or -1.
    int file() const { return file_; }

private:
    int file_ = -1;
    std::set<std::string> notes_;
};

Journal& journal();

// Text as a JSON string, quotes included.
std::string quoted(const std::string& text);

}  // namespace lk::host
