-- Healthy: there are as many workers as there should be. Degraded: a rule or the template is in the way.
local status = obj.status or {}

local function condition(name)
  for _, c in ipairs(status.conditions or {}) do
    if c.type == name then
      return c
    end
  end
  return {}
end

local function told(c)
  if c.message ~= nil and c.message ~= "" then
    return c.message
  end
  return c.reason
end

local function hs(health, message)
  return { status = health, message = message or status.summary or "" }
end

if status.observedGeneration == nil or status.observedGeneration < obj.metadata.generation then
  return hs("Progressing", "the operator has not seen this version yet")
end
for _, name in ipairs({ "DeliveryRule", "TemplateValid" }) do
  local c = condition(name)
  if c.status == "False" then
    return hs("Degraded", told(c))
  end
end
if condition("Stalled").status == "True" then
  return hs("Degraded", told(condition("Stalled")))
end
if condition("Ready").status == "True" then
  return hs("Healthy")
end
return hs("Progressing")
