// Makes a C++ function a function of the extension. What its parameters are decides what a call may pass:
//
//     Span<T>, Span<const T>   a contiguous array of that dtype, writable unless T is const; of a record, of int64
//     Nothing                  None
//     int64, bool, double      a Python or NumPy number
//     a struct with `fields`   a tuple of what these are (a NamedTuple of liverank_gpu.operations)
//
// Several overloads share a name; the first whose parameters fit is called, without the interpreter lock. If none fits, the call
// raises TypeError and says what it was given. A function returns nothing, a number, or a std::tuple of numbers; std::bad_alloc
// becomes MemoryError.
#pragma once
#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "arrays.h"

// The part of Python's stable ABI that the extension uses (PEP 384; the buffer protocol is in it since Python 3.11). Declared
// here, so that compiling needs no headers of Python: one library serves every CPython from 3.11 on, and can be compiled for
// another kind of machine.
extern "C" {
struct PyTypeObject;
struct PyObject {
    std::ptrdiff_t references;
    PyTypeObject* type;
};

struct Py_buffer {
    void* buf;
    PyObject* obj;
    std::ptrdiff_t len, itemsize;
    int readonly, ndim;
    char* format;
    std::ptrdiff_t *shape, *strides, *suboffsets;
    void* internal;
};
constexpr int PyBUF_FORMAT = 0x4, PyBUF_C_CONTIGUOUS = 0x38;

using PyCFunctionFast = PyObject* (*)(PyObject* module, PyObject* const* arguments, std::ptrdiff_t count);
struct PyMethodDef {
    const char* name;
    PyCFunctionFast function;
    int flags;
    const char* doc;
};
constexpr int METH_FASTCALL = 0x80;

struct PyModuleDef {
    PyObject base;
    void* init;
    std::ptrdiff_t index;
    PyObject* copy;
    const char* name;
    const char* doc;
    std::ptrdiff_t size;
    PyMethodDef* methods;
    void *slots, *traverse, *clear, *free;
};
constexpr int PYTHON_ABI_VERSION = 3;

extern PyObject _Py_NoneStruct;
extern PyObject* PyExc_TypeError;
unsigned long PyType_GetFlags(PyTypeObject*);
constexpr unsigned long LONG_SUBCLASS = 1ul << 24, TUPLE_SUBCLASS = 1ul << 26;

PyObject* PyModule_Create2(PyModuleDef*, int);
int PyObject_CheckBuffer(PyObject*);
int PyObject_GetBuffer(PyObject*, Py_buffer*, int);
void PyBuffer_Release(Py_buffer*);
long long PyLong_AsLongLong(PyObject*);
double PyFloat_AsDouble(PyObject*);
PyObject* PyLong_FromLongLong(long long);
PyObject* PyFloat_FromDouble(double);
PyObject* PyBool_FromLong(long);
std::ptrdiff_t PyTuple_Size(PyObject*);
PyObject* PyTuple_GetItem(PyObject*, std::ptrdiff_t);
PyObject* PyTuple_New(std::ptrdiff_t);
int PyTuple_SetItem(PyObject*, std::ptrdiff_t, PyObject*);
void Py_IncRef(PyObject*);
PyObject* PyErr_Format(PyObject*, const char*, ...);
PyObject* PyErr_NoMemory();
PyObject* PyErr_Occurred();
struct PyThreadState;
PyThreadState* PyEval_SaveThread();
void PyEval_RestoreThread(PyThreadState*);
}

namespace bind {

enum class Kind { NOTHING, ARRAY, INTEGER, REAL };

struct Argument {
    Kind kind;
    char code;  // of the dtype
    bool readonly;
    void* data;
    int64 number;  // of elements, or the integer itself
    double real;
};

// The kind of a number, and its size in bytes: 'i' signed, 'u' unsigned, 'f' floating-point, '?' bool.
inline char code_of(const Py_buffer& view) {
    const char format = view.format ? view.format[0] : 'B';
    const auto sized = [&](const char* codes) {
        return view.itemsize == 8 ? codes[3] : view.itemsize == 4 ? codes[2] : codes[view.itemsize - 1];
    };
    switch (format) {
        case '?': return '?';
        case 'f': return 'f';
        case 'd': return 'd';
        case 'b': case 'h': case 'i': case 'l': case 'q': return sized("bhil");
        case 'B': case 'H': case 'I': case 'L': case 'Q': return sized("BHIL");
        default: return '!';
    }
}

template <class T>
constexpr char code() {
    if constexpr (std::is_same_v<T, bool>) return '?';
    else if constexpr (std::is_same_v<T, float>) return 'f';
    else if constexpr (std::is_same_v<T, double>) return 'd';
    else if constexpr (requires { T::WORDS; }) return 'l';  // a record: rows of int64
    else {
        static_assert(std::is_integral_v<T>);
        constexpr const char* codes = std::is_signed_v<T> ? "bhil" : "BHIL";
        return codes[sizeof(T) == 8 ? 3 : sizeof(T) == 4 ? 2 : sizeof(T) - 1];
    }
}

// What a call passes, records flattened.
class Arguments {
public:
    ~Arguments() {
        for (int held = 0; held < _held; ++held) PyBuffer_Release(&_views[held]);
    }

    bool add(PyObject* given) {
        const unsigned long flags = PyType_GetFlags(given->type);
        if (flags & TUPLE_SUBCLASS) {
            const std::ptrdiff_t size = PyTuple_Size(given);
            for (std::ptrdiff_t place = 0; place < size; ++place)
                if (!add(PyTuple_GetItem(given, place))) return false;
            return true;
        }
        if (_count == MOST) return PyErr_Format(PyExc_TypeError, "more than %d arguments", MOST), false;
        Argument& argument = _items[_count++];
        if (given == &_Py_NoneStruct) argument = {Kind::NOTHING, 0, false, nullptr, 0, 0.0};
        else if (flags & LONG_SUBCLASS) integer(argument, PyLong_AsLongLong(given));
        else if (PyObject_CheckBuffer(given)) return buffer(argument, given);
        else argument = {Kind::REAL, 0, false, nullptr, 0, PyFloat_AsDouble(given)};
        return !PyErr_Occurred();
    }

    int count() const { return _count; }
    const Argument* begin() const { return _items; }

    std::string description() const {
        std::string text;
        for (const Argument* each = _items; each < _items + _count; ++each) {
            if (!text.empty()) text += ", ";
            switch (each->kind) {
                case Kind::NOTHING: text += "None"; break;
                case Kind::INTEGER: text += "int"; break;
                case Kind::REAL: text += "float"; break;
                case Kind::ARRAY: text += std::string(each->readonly ? "const array " : "array ") + each->code;
            }
        }
        return text;
    }

private:
    static constexpr int MOST = 64;
    Argument _items[MOST];
    Py_buffer _views[MOST];
    int _count = 0, _held = 0;

    static void integer(Argument& argument, int64 value) {
        argument = {Kind::INTEGER, 0, false, nullptr, value, static_cast<double>(value)};
    }

    bool buffer(Argument& argument, PyObject* given) {
        Py_buffer& view = _views[_held];
        if (PyObject_GetBuffer(given, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) return false;
        ++_held;
        const char type = code_of(view);
        if (view.ndim > 0) {
            argument = {Kind::ARRAY, type, view.readonly != 0, view.buf, view.itemsize ? view.len / view.itemsize : 0, 0.0};
            return true;
        }
        switch (type) {  // a number of NumPy
            case '?': case 'B': integer(argument, *static_cast<uint8*>(view.buf)); break;
            case 'i': integer(argument, *static_cast<int*>(view.buf)); break;
            case 'I': integer(argument, *static_cast<uint32*>(view.buf)); break;
            case 'l': case 'L': integer(argument, *static_cast<int64*>(view.buf)); break;
            case 'f': argument = {Kind::REAL, 0, false, nullptr, 0, *static_cast<float*>(view.buf)}; break;
            case 'd': argument = {Kind::REAL, 0, false, nullptr, 0, *static_cast<double*>(view.buf)}; break;
            default: return PyErr_Format(PyExc_TypeError, "a number of a dtype that kernels do not take"), false;
        }
        return true;
    }
};

template <class T>
struct Parameter;

template <class T>
struct Parameter<Span<T>> {
    static bool fits(const Argument*& at) {
        const Argument& given = *at++;
        return given.kind == Kind::ARRAY && given.code == code<std::remove_const_t<T>>() &&
               (std::is_const_v<T> || !given.readonly);
    }
    static Span<T> take(const Argument*& at) {
        const Argument& given = *at++;
        if constexpr (requires { T::WORDS; }) return {static_cast<T*>(given.data), given.number / T::WORDS};
        else return {static_cast<T*>(given.data), given.number};
    }
};

template <>
struct Parameter<Nothing> {
    static bool fits(const Argument*& at) { return (at++)->kind == Kind::NOTHING; }
    static Nothing take(const Argument*& at) { return ++at, Nothing{}; }
};

template <class T>
    requires std::is_integral_v<T>
struct Parameter<T> {
    static bool fits(const Argument*& at) { return (at++)->kind == Kind::INTEGER; }
    static T take(const Argument*& at) { return static_cast<T>((at++)->number); }
};

template <class T>
    requires std::is_floating_point_v<T>
struct Parameter<T> {
    static bool fits(const Argument*& at) {
        const Kind kind = (at++)->kind;
        return kind == Kind::REAL || kind == Kind::INTEGER;
    }
    static T take(const Argument*& at) { return static_cast<T>((at++)->real); }
};

template <class T, class List = typename T::fields>
struct Record;

template <class T, class... Types>
struct Record<T, Fields<Types...>> {
    static bool fits(const Argument*& at) { return (Parameter<Types>::fits(at) && ...); }
    static T take(const Argument*& at) { return T{Parameter<Types>::take(at)...}; }
};

template <class T>
    requires requires { typename T::fields; }
struct Parameter<T> : Record<T> {};

template <class T>
struct Leaves : std::integral_constant<int, 1> {};
template <class List>
struct LeavesOf;
template <class... Types>
struct LeavesOf<Fields<Types...>> : std::integral_constant<int, (0 + ... + Leaves<Types>::value)> {};
template <class T>
    requires requires { typename T::fields; }
struct Leaves<T> : LeavesOf<typename T::fields> {};

inline PyObject* result(bool value) { return PyBool_FromLong(value); }
inline PyObject* result(int64 value) { return PyLong_FromLongLong(value); }
inline PyObject* result(double value) { return PyFloat_FromDouble(value); }

template <class... Types>
PyObject* result(const std::tuple<Types...>& values) {
    PyObject* tuple = PyTuple_New(sizeof...(Types));
    std::apply([&](auto... each) { int place = 0; (PyTuple_SetItem(tuple, place++, result(each)), ...); }, values);
    return tuple;
}

template <auto function>
struct Overload;

template <class Result, class... Types, Result (*function)(Types...)>
struct Overload<function> {
    static constexpr int leaves = (0 + ... + Leaves<std::remove_cvref_t<Types>>::value);

    static bool fits(const Arguments& given) {
        [[maybe_unused]] const Argument* at = given.begin();
        return given.count() == leaves && (Parameter<std::remove_cvref_t<Types>>::fits(at) && ...);
    }

    template <bool QUICK>
    static PyObject* call(const Arguments& given) {
        [[maybe_unused]] const Argument* at = given.begin();
        // in braces, since these are evaluated from left to right
        std::tuple<std::remove_cvref_t<Types>...> values{Parameter<std::remove_cvref_t<Types>>::take(at)...};
        PyThreadState* state = QUICK ? nullptr : PyEval_SaveThread();
        const auto end = [&] {
            if (!QUICK) PyEval_RestoreThread(state);
        };
        try {
            if constexpr (std::is_void_v<Result>) {
                std::apply(function, values);
                end();
                Py_IncRef(&_Py_NoneStruct);
                return &_Py_NoneStruct;
            } else {
                const Result value = std::apply(function, values);
                end();
                return result(value);
            }
        } catch (const std::bad_alloc&) {
            end();
            return PyErr_NoMemory();
        }
    }
};

template <std::size_t SIZE>
struct Name {
    char text[SIZE];
    constexpr Name(const char (&name)[SIZE]) { std::copy_n(name, SIZE, text); }
};

template <Name name, bool QUICK, auto... functions>
PyObject* call(PyObject*, PyObject* const* arguments, std::ptrdiff_t count) {
    Arguments given;
    for (std::ptrdiff_t place = 0; place < count; ++place)
        if (!given.add(arguments[place])) return nullptr;
    PyObject* returned = nullptr;
    if (((Overload<functions>::fits(given) && (returned = Overload<functions>::template call<QUICK>(given), true)) || ...)) return returned;
    return PyErr_Format(PyExc_TypeError, "%s does not take (%s)", name.text, given.description().c_str());
}

inline std::vector<PyMethodDef>& methods() {
    static std::vector<PyMethodDef> all;
    return all;
}

// Registers the overloads of a name when the library is loaded.
template <Name name, bool QUICK, auto... functions>
struct Kernel {
    Kernel() { methods().push_back({name.text, call<name, QUICK, functions...>, METH_FASTCALL, nullptr}); }
};

}  // namespace bind

#define KERNEL_PLACE(prefix, line) prefix##line
#define KERNEL_AT(line) KERNEL_PLACE(kernel_, line)
// KERNEL("name", function, …): the overloads of a name
#define KERNEL(name, ...) static const bind::Kernel<name, false, __VA_ARGS__> KERNEL_AT(__LINE__)
// One that keeps the interpreter lock: it takes less time than getting the lock back beside busy threads.
#define QUICK_KERNEL(name, ...) static const bind::Kernel<name, true, __VA_ARGS__> KERNEL_AT(__LINE__)
