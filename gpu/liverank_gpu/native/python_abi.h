// The part of Python's stable ABI that the extension uses (PEP 384; the buffer protocol is in it since Python 3.11). Declared
// here, so that compiling needs no headers of Python: one library serves every CPython from 3.11 on, and can be compiled for
// another kind of machine.
#pragma once
#include <cstddef>

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
