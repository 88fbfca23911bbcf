-- Healthy: it ended well, or was cancelled as its spec asks. Degraded: it failed, or cannot begin.
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
local accepted, stalled, succeeded = condition("Accepted"), condition("Stalled"), condition("Succeeded")
if succeeded.status == "True" then
  return hs("Healthy")
end
if status.uiPhase == "terminal" and status.state == "cancelled" then
  if obj.spec.cancel == true then
    return hs("Healthy")
  end
  return hs("Degraded")
end
if succeeded.status == "False" and status.failure ~= nil then
  local failure = status.failure
  return hs("Degraded", failure.class .. ": " .. failure.message .. " (" .. failure.recommendedAction .. ")")
end
if stalled.status == "True" then
  return hs("Degraded", told(stalled))
end
if accepted.status == "False" then
  return hs("Degraded", told(accepted))
end
if obj.spec.suspend == true and status.state == "pending" then
  return hs("Suspended", "spec.suspend is true")
end
return hs("Progressing")
