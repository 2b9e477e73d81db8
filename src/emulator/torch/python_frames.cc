#include "src/emulator/torch/python_frames.h"

#include <dlfcn.h>

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace commpool::internal::emulated_torch {

namespace {

using Object = void;  // PyObject, PyFrameObject or PyCodeObject

// The functions of this process's Python; null without one.
struct Python {
  int (*is_initialized)() = nullptr;
  int (*is_finalizing)() = nullptr;
  int (*ensure)() = nullptr;
  int (*has_lock)() = nullptr;
  void (*release)(int) = nullptr;
  void* (*thread_state)() = nullptr;
  Object* (*frame)() = nullptr;
  Object* (*back)(Object*) = nullptr;
  Object* (*code)(Object*) = nullptr;
  int (*last_instruction)(Object*) = nullptr;
  int (*line)(Object*) = nullptr;
  Object* (*attribute)(Object*, const char*) = nullptr;
  const char* (*text)(Object*) = nullptr;
  void (*keep)(Object*) = nullptr;
  void (*let_go)(Object*) = nullptr;
  void (*clear_error)() = nullptr;
  bool complete = false;
};

template <typename Function>
bool FindPython(const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
  return *function != nullptr;
}

Python LoadPython() {
  Python python;
  if (!FindPython("Py_IsFinalizing", &python.is_finalizing)) FindPython("_Py_IsFinalizing", &python.is_finalizing);
  python.complete =
      FindPython("Py_IsInitialized", &python.is_initialized) && FindPython("PyGILState_Ensure", &python.ensure) &&
      FindPython("PyGILState_Check", &python.has_lock) && FindPython("PyGILState_Release", &python.release) &&
      FindPython("PyGILState_GetThisThreadState", &python.thread_state) &&
      FindPython("PyEval_GetFrame", &python.frame) && FindPython("PyFrame_GetBack", &python.back) &&
      FindPython("PyFrame_GetCode", &python.code) && FindPython("PyFrame_GetLasti", &python.last_instruction) &&
      FindPython("PyFrame_GetLineNumber", &python.line) && FindPython("PyObject_GetAttrString", &python.attribute) &&
      FindPython("PyUnicode_AsUTF8", &python.text) && FindPython("Py_IncRef", &python.keep) &&
      FindPython("Py_DecRef", &python.let_go) && FindPython("PyErr_Clear", &python.clear_error);
  return python;
}

const Python& ThePython() {
  static const Python python = LoadPython();
  return python;
}

// A function of the program, PyTorch's or another's.
struct Code {
  enum class Part { kProgram, kTorchShown, kTorch };
  Part part = Part::kProgram;
  std::string file;
  std::string name;
};

std::string TextOf(Object* object, const char* attribute) {
  const Python& python = ThePython();
  Object* const value = python.attribute(object, attribute);
  const char* const text = value == nullptr ? nullptr : python.text(value);
  std::string copy = text == nullptr ? "?" : text;
  if (value == nullptr || text == nullptr) python.clear_error();
  if (value != nullptr) python.let_go(value);
  return copy;
}

Code Read(Object* object) {
  Code code;
  code.name = TextOf(object, "co_name");
  code.file = TextOf(object, "co_filename");
  const size_t torch = code.file.rfind("/torch/");
  const bool package = torch != std::string::npos && code.file.find("site-packages/torch/") != std::string::npos;
  if (!package && code.file.rfind("<", 0) != 0) return code;
  if (!package) {
    code.part = code.file == "<string>" || code.file == "<stdin>" ? Code::Part::kProgram : Code::Part::kTorch;
    return code;
  }
  const bool shown = code.file.find("/torch/distributed/", torch) != std::string::npos ||
                     code.file.find("/torch/optim/", torch) != std::string::npos;
  code.part = shown ? Code::Part::kTorchShown : Code::Part::kTorch;
  code.file = code.file.substr(torch + 1);
  return code;
}

// What is known of code objects and of calls in them, and the texts that reports have. Python's lock guards it. Nothing
// ends it, so the code objects stay too, and no address comes back as another's.
struct Known {
  std::unordered_map<Object*, Code> codes;
  std::map<std::pair<Object*, int>, std::string> calls;
  std::map<std::pair<const std::string*, const std::string*>, std::string> places;

  static Known& Get() {
    static auto* const known = new Known;
    return *known;
  }

  const Code& CodeOf(Object* object) {
    const auto [entry, fresh] = codes.try_emplace(object);
    if (fresh) {
      ThePython().keep(object);
      entry->second = Read(object);
    }
    return entry->second;
  }

  const std::string& CallOf(Object* frame, Object* code_object, const Code& code) {
    std::string& call = calls[{code_object, ThePython().last_instruction(frame)}];
    if (call.empty()) call = code.file + ":" + std::to_string(ThePython().line(frame)) + " in " + code.name;
    return call;
  }
};

const char* PlaceOfFrames() {
  const Python& python = ThePython();
  Known& known = Known::Get();
  const std::string* inner = nullptr;
  const std::string* outer = nullptr;
  Object* frame = python.frame();
  if (frame == nullptr) return nullptr;
  python.keep(frame);
  while (frame != nullptr && outer == nullptr) {
    Object* const code_object = python.code(frame);
    const Code& code = known.CodeOf(code_object);
    if (code.part == Code::Part::kProgram) {
      outer = &known.CallOf(frame, code_object, code);
    } else if (code.part == Code::Part::kTorchShown && inner == nullptr) {
      inner = &known.CallOf(frame, code_object, code);
    }
    python.let_go(code_object);
    Object* const back = outer == nullptr ? python.back(frame) : nullptr;
    python.let_go(frame);
    frame = back;
  }
  if (inner == nullptr) return outer == nullptr ? nullptr : outer->c_str();
  if (outer == nullptr) return inner->c_str();
  std::string& place = known.places[{inner, outer}];
  if (place.empty()) place = *inner + ", called at " + *outer;
  return place.c_str();
}

}  // namespace

bool PythonEnds() {
  const Python& python = ThePython();
  if (!python.complete) return false;
  return python.is_initialized() == 0 || (python.is_finalizing != nullptr && python.is_finalizing() != 0);
}

const char* PythonPlace() {
  const Python& python = ThePython();
  if (!python.complete || PythonEnds() || python.thread_state() == nullptr) return nullptr;
  const int state = python.ensure();
  const char* const place = PlaceOfFrames();
  python.release(state);
  return place;
}

const char* PythonPlaceIfLocked() {
  const Python& python = ThePython();
  if (!python.complete || PythonEnds() || python.thread_state() == nullptr || python.has_lock() == 0) return nullptr;
  return PythonPlace();
}

}  // namespace commpool::internal::emulated_torch
