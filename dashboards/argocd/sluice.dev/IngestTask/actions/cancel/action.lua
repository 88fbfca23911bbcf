-- Final: taking it back changes nothing.
obj.spec.cancel = true
return obj
