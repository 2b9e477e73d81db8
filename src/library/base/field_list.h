// The fields of a struct that goes into bytes (fields.h), in their order: `using Fields = FieldList<&Text::number>;`.
#pragma once

namespace commpool::internal {

template <auto... kFields>
struct FieldList {
  template <typename Entry, typename Visit>
  static void Each(Entry& entry, const Visit& visit) {
    (visit(entry.*kFields), ...);
  }
};

}  // namespace commpool::internal
