-- A higher number starts it again. It counts from what the operator has acted upon.
local seen = (obj.status or {}).observedRetries or 0
local asked = obj.spec.retries or 0
if asked < seen then
  asked = seen
end
obj.spec.retries = asked + 1
return obj
