-- What a person may do to it now.
local status = obj.status or {}
local ended = status.uiPhase == "terminal"
local pending = status.state == nil or status.state == "pending"
local actions = {}
actions["cancel"] = { disabled = ended or obj.spec.cancel == true }
local good = status.displayStatus == "completed" or status.displayStatus == "partial_success"
actions["retry"] = { disabled = not ended or good or obj.spec.cancel == true }
actions["suspend"] = { disabled = not pending or obj.spec.suspend == true }
actions["resume"] = { disabled = obj.spec.suspend ~= true }
return actions
