-- What a person may do to it now.
local policy = obj.spec.policy or "None"
local actions = {}
actions["hold"] = { disabled = policy == "Hold" }
actions["drain"] = { disabled = policy == "HoldAndDrain" }
actions["release"] = { disabled = policy == "None" }
return actions
