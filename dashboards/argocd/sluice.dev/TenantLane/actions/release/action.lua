obj.spec.policy = "None"
obj.spec.policyReason = nil
return obj
