-- Nothing new starts; running work goes on.
obj.spec.policy = "Hold"
return obj
