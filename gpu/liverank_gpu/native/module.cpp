// The extension: its functions are what KERNEL registers in the other files. MODULE is its name, which says for which level of
// processors it was compiled.
#include "bind.h"

#define STRING(name) #name
#define STRING_OF(name) STRING(name)
#define INIT(name) PyInit_##name
#define INIT_OF(name) INIT(name)

extern "C" __attribute__((visibility("default"))) PyObject* INIT_OF(MODULE)() {
    static PyModuleDef module;
    bind::methods().push_back({});
    module = {{1, nullptr}, nullptr, 0, nullptr, STRING_OF(MODULE), nullptr, -1, bind::methods().data(),
              nullptr, nullptr, nullptr, nullptr};
    return PyModule_Create2(&module, PYTHON_ABI_VERSION);
}
