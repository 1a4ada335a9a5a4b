// symbols.cpp: the symbol table of an object file, see symbols.h.
#include "symbols.h"

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include <elf.h>

namespace lk {

namespace {

std::string read_file(const std::string& path) {
    std::FILE* stream = std::fopen(path.c_str(), "rb");
    if (!stream) throw std::runtime_error("the file cannot be opened");
    std::string file;
    char part[1 << 16];
    while (const size_t bytes = std::fread(part, 1, sizeof part, stream)) file.append(part, bytes);
    std::fclose(stream);
    return file;
}

template <typename Struct>
const Struct* table(const std::string& file, uint64_t offset, uint64_t bytes) {
    if (offset > file.size() || bytes > file.size() - offset) throw std::runtime_error("the file is cut off");
    return reinterpret_cast<const Struct*>(file.data() + offset);
}

}  // namespace

std::vector<Symbol> read_symbols(const std::string& path) {
    const std::string file = read_file(path);
    const auto* header = table<Elf64_Ehdr>(file, 0, sizeof(Elf64_Ehdr));
    if (std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64) {
        throw std::runtime_error("the file is not a 64-bit ELF file");
    }
    const auto* sections = table<Elf64_Shdr>(file, header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr));
    const auto is_constant = [&](uint16_t section) {
        if (header->e_shstrndx >= header->e_shnum || section >= header->e_shnum) return false;
        const Elf64_Shdr& names = sections[header->e_shstrndx];
        const std::string name = table<char>(file, names.sh_offset, names.sh_size) + sections[section].sh_name;
        return name.rfind(".lk_constant.", 0) == 0;
    };
    std::vector<Symbol> found;
    for (int i = 0; i < header->e_shnum; ++i) {
        const Elf64_Shdr& section = sections[i];
        if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM) continue;
        if (section.sh_link >= header->e_shnum) throw std::runtime_error("the symbol table has no names");
        const auto* symbols = table<Elf64_Sym>(file, section.sh_offset, section.sh_size);
        const Elf64_Shdr& names = sections[section.sh_link];
        const char* text = table<char>(file, names.sh_offset, names.sh_size);
        for (uint64_t at = 0; at < section.sh_size / sizeof(Elf64_Sym); ++at) {
            const Elf64_Sym& symbol = symbols[at];
            found.push_back({text + symbol.st_name, symbol.st_value, symbol.st_size, symbol.st_shndx != SHN_UNDEF,
                             ELF64_ST_TYPE(symbol.st_info) == STT_TLS, is_constant(symbol.st_shndx)});
        }
    }
    return found;
}

}  // namespace lk
