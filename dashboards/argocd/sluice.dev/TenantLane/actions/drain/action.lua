-- Nothing new starts; running work goes back to pending.
obj.spec.policy = "HoldAndDrain"
return obj
